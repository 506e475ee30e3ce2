/**
 * The radix tree over base_path + path: finds the most specific pattern that matches a path and takes its method.
 * Which hosts a tree answers for, and what is cut out of the matched path, is `table.ts`.
 *
 * At each segment a literal goes before {name}, and {name} before {name*}; when a branch fails further down, the next is tried, so
 * the order of declaration never matters. Every node lies on one path from the root and is visited at most once in a search.
 */
import type { Segment } from "./pattern.ts";

/** One route as the tree sees it. */
export interface Endpoint {
  /** base_path and path together. */
  readonly segments: readonly Segment[];
  /** How many of the segments are the base_path's. */
  readonly baseLength: number;
  /** Empty: all methods. */
  readonly methods: readonly string[];
  /** Whether paths with `%2F` may come here. */
  readonly encodedSlashes: boolean;
}

export interface Tree<E extends Endpoint> {
  readonly root: Node<E>;
  /** Patterns without placeholders, by their whole path. */
  readonly literals: ReadonlyMap<string, Leaf<E>>;
}

/** Builds the tree. Of two endpoints that take the same method of the same pattern below equally long base_paths the first one wins. */
export function growTree<E extends Endpoint>(endpoints: readonly E[]): Tree<E> {
  const root = new Node<E>();
  const literals = new Map<string, Leaf<E>>();
  const leaves = new Set<Leaf<E>>();
  for (const endpoint of endpoints) {
    const leaf = leafFor(root, endpoint.segments);
    leaf.endpoints.push(endpoint);
    leaves.add(leaf);
    const path = literalPath(endpoint.segments);
    if (path !== null) literals.set(path, leaf);
  }
  for (const leaf of leaves) settle(leaf);
  compress(root, new Map());
  return { root, literals };
}

/** One request as the tree sees it, and what the search learnt on the way. */
export class Search {
  /** Normalised, and in the spelling in which paths are compared. */
  readonly path: string;
  readonly method: string;
  /** Whether the path holds `%2F`: then only endpoints that let it through count. */
  readonly encodedSlash: boolean;
  /** Where the path ends, a trailing "/" left out. */
  readonly end: number;
  /** The methods of patterns that match the path but do not take this method; null while there are none. */
  allow: Set<string> | null = null;
  /** How many nodes were looked at. */
  visits = 0;

  constructor(path: string, method: string, encodedSlash: boolean) {
    this.path = path;
    this.method = method;
    this.encodedSlash = encodedSlash;
    this.end = pathEnd(path);
  }
}

/** The endpoint of the most specific matching pattern that takes the method, or null; then `search.allow` tells why. */
export function lookUp<E extends Endpoint>(tree: Tree<E>, search: Search): E | null {
  // Nothing is more specific than a literal at every segment, so if its pattern takes the method, the tree would say the same.
  const leaf = tree.literals.size === 0 ? undefined : tree.literals.get(search.path);
  return (leaf === undefined ? null : choose(leaf, search)) ?? walk(tree.root, 0, search);
}

/** The length of a path without one trailing "/"; 0 for "/". */
export function pathEnd(path: string): number {
  const last = path.length - 1;
  return path.charCodeAt(last) === SLASH ? last : path.length;
}

/** Index of the "/" behind the segment that begins at the "/" at `at`, or `end` when it is the last one. */
export function nextSlash(path: string, at: number, end: number): number {
  const next = path.indexOf("/", at + 1);
  return next < 0 || next > end ? end : next;
}

class Node<E extends Endpoint> {
  /** Segments that must follow the one that leads here; the branches stand behind them. */
  tail: Tail = NO_TAIL;
  literals: Map<string, Node<E>> | null = null;
  one: Node<E> | null = null;
  rest: Leaf<E> | null = null;
  leaf: Leaf<E> | null = null;
}

/** Texts of literal segments, and null for {name}. Shared between nodes: the fewer places a search touches, the faster it is. */
type Tail = readonly (string | null)[];
const NO_TAIL: Tail = [];

/** Where a pattern ends: its endpoints by method. */
class Leaf<E extends Endpoint> {
  endpoints: E[] = [];
  /** Methods taken by name, and the endpoint that takes each: lists, as they are short. */
  methods: readonly string[] = [];
  takers: readonly E[] = [];
  /** Takes all other methods. */
  others: E | null = null;
  /** The same for paths with `%2F`: those of the endpoints that let it through. */
  slashed: Leaf<E> | null = null;
}

/** `before` is the index of the "/" behind the segment that leads to the node, or the end of the path. */
function walk<E extends Endpoint>(node: Node<E>, before: number, search: Search): E | null {
  search.visits++;
  const { path, end } = search;
  const at = pass(node.tail, before, path, end);
  if (at < 0) return null;
  if (at === end) return node.leaf === null ? null : choose(node.leaf, search);
  if (node.literals !== null || node.one !== null) {
    const next = nextSlash(path, at, end);
    const child = node.literals?.get(path.slice(at + 1, next));
    const found = child === undefined ? null : walk(child, next, search);
    if (found !== null) return found;
    if (node.one !== null) {
      // /a/b/z fails under /a/b, try /a/{x}/z
      const other = walk(node.one, next, search);
      if (other !== null) return other;
    }
  }
  return node.rest === null ? null : choose(node.rest, search);
}

/** Where the path stands behind the segments of a tail, or -1 when others stand there. */
function pass(tail: Tail, before: number, path: string, end: number): number {
  let at = before;
  for (let i = 0; i < tail.length; i++) {
    if (at === end) return -1;
    const next = nextSlash(path, at, end);
    const text = tail[i]!;
    if (text !== null && (next - at - 1 !== text.length || !path.startsWith(text, at + 1))) return -1;
    at = next;
  }
  return at;
}

function choose<E extends Endpoint>(either: Leaf<E>, search: Search): E | null {
  const leaf = search.encodedSlash ? either.slashed : either;
  if (leaf === null) return null;
  const { methods } = leaf;
  for (let i = 0; i < methods.length; i++) if (methods[i] === search.method) return leaf.takers[i]!;
  if (leaf.others !== null) return leaf.others;
  search.allow ??= new Set();
  for (const method of methods) search.allow.add(method);
  return null;
}

function leafFor<E extends Endpoint>(root: Node<E>, segments: readonly Segment[]): Leaf<E> {
  let node = root;
  for (const segment of segments) {
    if (segment.kind === "rest") return (node.rest ??= new Leaf());
    if (segment.kind === "one") node = node.one ??= new Node();
    else {
      const literals: Map<string, Node<E>> = (node.literals ??= new Map());
      let child = literals.get(segment.text);
      if (child === undefined) literals.set(segment.text, (child = new Node()));
      node = child;
    }
  }
  return (node.leaf ??= new Leaf());
}

function literalPath(segments: readonly Segment[]): string | null {
  let path = "";
  for (const segment of segments) {
    if (segment.kind !== "literal") return null;
    path += "/" + segment.text;
  }
  return path === "" ? "/" : path;
}

/** Sorts a leaf's endpoints into its methods, once all of them are there. */
function settle<E extends Endpoint>(leaf: Leaf<E>): void {
  const endpoints = leaf.endpoints.sort((a, b) => b.baseLength - a.baseLength);
  const byName = new Map<string, E>();
  // Behind an endpoint that takes everything there is nothing left to take.
  const others = endpoints.find((endpoint) => endpoint.methods.length === 0) ?? null;
  for (const endpoint of endpoints) {
    if (endpoint === others) break;
    for (const method of endpoint.methods) if (!byName.has(method)) byName.set(method, endpoint);
  }
  const get = byName.get("GET");
  if (get !== undefined && !byName.has("HEAD")) byName.set("HEAD", get);
  leaf.methods = [...byName.keys()];
  leaf.takers = [...byName.values()];
  leaf.others = others;

  const tolerant = endpoints.filter((endpoint) => endpoint.encodedSlashes);
  if (tolerant.length === endpoints.length) leaf.slashed = leaf;
  else if (tolerant.length > 0) {
    leaf.slashed = new Leaf();
    leaf.slashed.endpoints = tolerant;
    settle(leaf.slashed);
  }
}

/** Joins chains in which nothing branches and nothing ends: /api -> /v1 -> /{x} -> /items becomes one step. */
function compress<E extends Endpoint>(node: Node<E>, tails: Map<string, Tail>): void {
  const children = [...(node.literals?.values() ?? []), ...(node.one === null ? [] : [node.one])];
  for (const child of children) {
    compress(child, tails);
    const only = onlyBranch(child);
    if (only === null) continue;
    const tail = [only.text, ...only.node.tail];
    const shape = tail.map((text) => text ?? "{}").join("/");
    if (!tails.has(shape)) tails.set(shape, tail);
    child.tail = tails.get(shape)!;
    child.literals = only.node.literals;
    child.one = only.node.one;
    child.rest = only.node.rest;
    child.leaf = only.node.leaf;
  }
}

function onlyBranch<E extends Endpoint>(node: Node<E>): { text: string | null; node: Node<E> } | null {
  if (node.leaf !== null || node.rest !== null) return null;
  if (node.one !== null) return node.literals === null ? { text: null, node: node.one } : null;
  if (node.literals?.size !== 1) return null;
  const [text, child] = node.literals.entries().next().value!;
  return { text, node: child };
}

const SLASH = 0x2f;
