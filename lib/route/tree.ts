/**
 * The radix tree over base_path + path: finds the most specific pattern that matches a path, and the route that takes a method of it.
 * Which hosts a tree answers for, and what is cut out of the matched path, is `table.ts`.
 *
 * At each segment a literal goes before {name}, and {name} before {name*}; when a branch fails further down, the next is tried, so
 * the order of declaration never matters. Every node lies on one path from the root and is visited at most once in a search. Methods
 * are no part of the search: if the pattern that was found does not take the method, no other pattern is tried.
 *
 * With ten thousand routes a search spends its time waiting for memory. So the tree is grown from objects and then packed into one
 * array of integers, in which a node, the text it must find, and the routes that end there stand side by side; see `pack`.
 */
import type { Segment } from "./pattern.ts";

/** One route as the tree sees it. */
export interface Endpoint {
  /** What a search gives, 0 or more: the caller knows what it stands for. */
  readonly id: number;
  /** base_path and path together. */
  readonly segments: readonly Segment[];
  /** How many of the segments are the base_path's. */
  readonly baseLength: number;
  /** Empty: all methods. */
  readonly methods: readonly string[];
}

/** Packed; asked by `lookUp`. */
export interface Tree {
  /** The records of nodes and leaves; a number that refers to one is its index here, 0 none. */
  readonly cells: Int32Array;
  /** The same memory as bytes: the texts of nodes. */
  readonly chars: Uint8Array;
  /** The lists of methods that leaves refer to. */
  readonly methods: readonly (readonly string[])[];
  /** Written by each search, see `Search.marks`: searches do not overlap, so one of these does for all of them. */
  readonly marks: Int32Array;
}

/** Builds the tree. Of two endpoints that take the same method of the same pattern below equally long base_paths the first one wins. */
export function growTree(endpoints: readonly Endpoint[]): Tree {
  const root = new Node();
  for (const endpoint of endpoints) leafFor(root, endpoint.segments).push(endpoint);
  return pack(root);
}

/** One path as the tree sees it, and what the search found. */
export class Search {
  /** Normalised, and in the spelling in which paths are compared. */
  readonly path: string;
  /** Where the path ends, a trailing "/" left out; 0 for "/". */
  readonly end: number;
  /** How many nodes were looked at. */
  visits = 0;
  /** The tree that was asked last, and the leaf of the pattern that matches; 0: none does. */
  tree: Tree = NO_TREE;
  leaf = 0;

  constructor(path: string) {
    this.path = path;
    const last = path.length - 1;
    this.end = path.charCodeAt(last) === SLASH ? last : path.length;
  }

  /** Where the placeholders of the pattern begin and end in the path, in pairs. The tree's: valid until its next search. */
  get marks(): Int32Array {
    return this.tree.marks;
  }
}

/** Looks for the most specific pattern that matches the path; says whether there is one. What takes which method of it is `endpointFor`. */
export function lookUp(tree: Tree, search: Search): boolean {
  search.tree = tree;
  search.leaf = walk(tree, ROOT, 0, search);
  return search.leaf !== 0;
}

/** The id of the endpoint that takes the method of the pattern that was found; NONE: none does. */
export function endpointFor({ tree: { cells, methods }, leaf }: Search, method: string): number {
  const names = methods[cells[leaf + METHODS]!]!;
  for (let i = 0; i < names.length; i++) if (names[i] === method) return cells[leaf + TAKERS + i]!;
  return cells[leaf + OTHERS]!;
}

/** The methods that the pattern takes by name, and the ids of all its endpoints. */
export function endpointsOf({ tree: { cells, methods }, leaf }: Search): { readonly methods: readonly string[]; readonly ids: ReadonlySet<number> } {
  const names = methods[cells[leaf + METHODS]!]!;
  const ids = new Set(names.map((_name, i) => cells[leaf + TAKERS + i]!));
  const others = cells[leaf + OTHERS]!;
  return { methods: names, ids: others === NONE ? ids : ids.add(others) };
}

/**
 * The record of a node, from its index on; its text stands behind it. All patterns through a node have the same placeholders before
 * it, so which marks are its own is known beforehand, and going back needs no undoing.
 */
const ENDS = 0; // the leaf of the pattern that ends here
const REST = 1; // the leaf of the pattern that goes on with {name*}
const ONE = 2; // the node of {name}
const LITERALS = 3; // the fork of the literals that lead on; where there is but one, its node, negative
const FIRST_MARK = 4; // index into the marks: of the first placeholder in the text, and of the first behind it
const NEXT_MARK = 5;
const LENGTH = 6; // of the text
const TEXT = 7;

/**
 * The record of a fork: literals that are alike up to one character and tell themselves apart there. A few bits of it choose the one
 * literal that the path can have, or the next fork; whether the path does have it is seen when its text is compared.
 */
const PLACE = 0; // of the character, counted from the beginning of the segment
const SHIFT = 1;
const MASK = 2;
const BRANCHES = 3; // by the bits: a fork, a node (negative), or none

/** The record of a leaf: the endpoints of one pattern by method. */
const OTHERS = 0; // the endpoint that takes all methods not listed, or NONE
const METHODS = 1; // the list of methods taken by name
const TAKERS = 2; // the endpoint of each method in the list

/** No endpoint. */
export const NONE = -1;

/** 0 is no record. */
const ROOT = 1;

/** Stands in a text for {name}: one segment, whatever it is. */
const ANY = 0;

/** The leaf that the path leads to, or 0. `at` is the index of the "/" behind what led to the node, or the end of the path. */
function walk(tree: Tree, node: number, at: number, search: Search): number {
  search.visits++;
  const { cells } = tree;
  const { path, end } = search;
  if (at === end) return cells[node + ENDS]!;
  let literal = cells[node + LITERALS]!;
  while (literal > 0) {
    const place = at + 1 + cells[literal + PLACE]!;
    const code = place < end ? path.charCodeAt(place) : SLASH;
    literal = cells[literal + BRANCHES + ((code >> cells[literal + SHIFT]!) & cells[literal + MASK]!)]!;
  }
  if (literal < 0) {
    const found = enter(tree, -literal, at + 1, search);
    if (found !== 0) return found;
  }
  if (cells[node + ONE] !== 0) {
    // /a/b/z fails under /a/b, try /a/{x}/z
    const found = enter(tree, cells[node + ONE]!, at + 1, search);
    if (found !== 0) return found;
  }
  if (cells[node + REST] === 0) return 0;
  const mark = cells[node + NEXT_MARK]!;
  tree.marks[mark] = at + 1;
  tree.marks[mark + 1] = end;
  return cells[node + REST]!;
}

/** Goes on from a node if its text stands in the path at `at`, where a segment begins. */
function enter(tree: Tree, node: number, at: number, search: Search): number {
  const { cells, chars, marks } = tree;
  const { path, end } = search;
  const from = 4 * (node + TEXT);
  const to = from + cells[node + LENGTH]!;
  let mark = cells[node + FIRST_MARK]!;
  for (let i = from; i < to; i++) {
    if (at >= end) return 0;
    const code = chars[i]!;
    if (code !== ANY) {
      if (path.charCodeAt(at) !== code) return 0;
      at++;
      continue;
    }
    marks[mark] = at;
    while (at < end && path.charCodeAt(at) !== SLASH) at++;
    marks[mark + 1] = at;
    mark += 2;
  }
  return at === end || path.charCodeAt(at) === SLASH ? walk(tree, node, at, search) : 0;
}

/** A node as it grows. */
class Node {
  literals: Map<string, Node> | null = null;
  one: Node | null = null;
  /** The endpoints of the pattern that goes on with {name*}, and of the one that ends here. */
  rest: Endpoint[] | null = null;
  ends: Endpoint[] | null = null;
}

function leafFor(root: Node, segments: readonly Segment[]): Endpoint[] {
  let node = root;
  for (const segment of segments) {
    if (segment.kind === "rest") return (node.rest ??= []);
    if (segment.kind === "one") node = node.one ??= new Node();
    else {
      const literals: Map<string, Node> = (node.literals ??= new Map());
      let child = literals.get(segment.text);
      if (child === undefined) literals.set(segment.text, (child = new Node()));
      node = child;
    }
  }
  return (node.ends ??= []);
}

/** Writes the nodes into one array, each followed by its text, its leaves and its forks. */
function pack(root: Node): Tree {
  const packing: Packing = { cells: new Array<number>(ROOT).fill(0), texts: [], methods: [], lists: new Map(), marks: 0, open: [] };
  packNode(packing, root, "", 0);
  // Lists and no recursion, here and among the forks: thousands of literals may be alike, each in one character more.
  for (let next = packing.open.pop(); next !== undefined; next = packing.open.pop()) {
    const { from, sign, segment, mark } = next;
    let { node } = next;
    let text = segment;
    // Chains in which nothing branches and nothing ends become one text: /api -> /v1 -> /{x} -> /items.
    for (let only = onlyBranch(node); only !== null; only = onlyBranch(node)) {
      text += "/" + only.segment;
      node = only.node;
    }
    packing.cells[from] = sign * packing.cells.length;
    packNode(packing, node, text, mark);
  }
  const cells = Int32Array.from(packing.cells);
  const chars = new Uint8Array(cells.buffer);
  for (const { from, text } of packing.texts) for (let i = 0; i < text.length; i++) chars[from + i] = text.charCodeAt(i);
  return { cells, chars, methods: packing.methods, marks: new Int32Array(packing.marks) };
}

interface Packing {
  readonly cells: number[];
  /** What is still to be written between the cells, from which byte on. */
  readonly texts: { readonly from: number; readonly text: string }[];
  readonly methods: (readonly string[])[];
  /** The index of each list of methods, by its names. */
  readonly lists: Map<string, number>;
  marks: number;
  /** What cells are still to lead to. */
  readonly open: Open[];
}

interface Open {
  readonly from: number;
  /** Of the reference: literals' are negative. */
  readonly sign: 1 | -1;
  readonly segment: string;
  readonly node: Node;
  /** The first mark that no node before it needs. */
  readonly mark: number;
}

function packNode(packing: Packing, node: Node, text: string, mark: number): void {
  const { cells } = packing;
  const index = cells.length;
  let next = mark;
  for (let any = text.indexOf(ANY_SEGMENT); any >= 0; any = text.indexOf(ANY_SEGMENT, any + 1)) next += 2;
  cells.push(0, 0, 0, 0, mark, next, text.length);
  if (text !== "") packing.texts.push({ from: 4 * cells.length, text });
  for (let i = 0; i < text.length; i += 4) cells.push(0);
  packing.marks = Math.max(packing.marks, node.rest === null ? next : next + 2);
  if (node.ends !== null) cells[index + ENDS] = packLeaf(packing, node.ends);
  if (node.rest !== null) cells[index + REST] = packLeaf(packing, node.rest);
  if (node.one !== null) packing.open.push({ from: index + ONE, sign: 1, segment: ANY_SEGMENT, node: node.one, mark: next });
  if (node.literals !== null) packForks(packing, index + LITERALS, [...node.literals], next);
}

/** Lays out the forks to which the cell `start` leads. */
function packForks({ cells, open }: Packing, start: number, literals: [string, Node][], mark: number): void {
  // Those of `all` are alike in the first `alike` characters.
  const groups = [{ from: start, all: literals, alike: 0 }];
  for (let group = groups.pop(); group !== undefined; group = groups.pop()) {
    const { from, all, alike } = group;
    const [first, node] = all[0]!;
    if (all.length === 1) {
      open.push({ from, sign: -1, segment: first, node, mark });
      continue;
    }
    let place = alike;
    // By index: taken apart by a pattern, each would cost an iterator until the compiler has seen this code often.
    while (all.every((literal) => codeAt(literal[0], place) === codeAt(first, place))) place++;
    const branches = groupBy(all, (literal) => codeAt(literal[0], place));
    const { shift, mask } = bitsApart([...branches.keys()]);
    const fork = cells.length;
    cells[from] = fork;
    cells.push(place, shift, mask, ...new Array<number>(mask + 1).fill(0));
    for (const [code, branch] of branches) groups.push({ from: fork + BRANCHES + ((code >> shift) & mask), all: branch, alike: place + 1 });
  }
}

/** A literal ends where the path has a "/", or ends as well. */
function codeAt(literal: string, place: number): number {
  return place < literal.length ? literal.charCodeAt(place) : SLASH;
}

function groupBy<K, V>(values: readonly V[], keyOf: (value: V) => K): Map<K, V[]> {
  const groups = new Map<K, V[]>();
  for (const value of values) {
    const key = keyOf(value);
    const group = groups.get(key);
    if (group === undefined) groups.set(key, [value]);
    else group.push(value);
  }
  return groups;
}

/** The fewest bits that differ between all the codes; at worst all seven of ASCII. */
function bitsApart(codes: readonly number[]): { shift: number; mask: number } {
  let mask = 1;
  while (mask + 1 < codes.length) mask = 2 * mask + 1;
  for (; ; mask = 2 * mask + 1) for (let shift = 0; mask << shift < 128; shift++) if (differ(codes, mask << shift)) return { shift, mask };
}

/** Whether no two of the codes are alike in these bits. */
function differ(codes: readonly number[], bits: number): boolean {
  for (let i = 1; i < codes.length; i++) for (let j = 0; j < i; j++) if (((codes[i]! ^ codes[j]!) & bits) === 0) return false;
  return true;
}

function onlyBranch({ ends, rest, one, literals }: Node): { segment: string; node: Node } | null {
  if (ends !== null || rest !== null) return null;
  if (one !== null) return literals === null ? { segment: ANY_SEGMENT, node: one } : null;
  if (literals?.size !== 1) return null;
  const [segment, node] = literals.entries().next().value!;
  return { segment, node };
}

/** Sorts the endpoints of one pattern into its methods. */
function packLeaf(packing: Packing, endpoints: readonly Endpoint[]): number {
  const { cells } = packing;
  if (endpoints.length === 1) return packOnly(packing, endpoints[0]!);
  const sorted = [...endpoints].sort((a, b) => b.baseLength - a.baseLength);
  const takers = new Map<string, number>();
  let others = NONE;
  for (const { id, methods } of sorted) {
    // Behind an endpoint that takes everything there is nothing left to take.
    if (methods.length === 0) {
      others = id;
      break;
    }
    for (const method of methods) if (!takers.has(method)) takers.set(method, id);
  }
  const get = takers.get("GET");
  if (get !== undefined && !takers.has("HEAD")) takers.set("HEAD", get);

  const index = cells.length;
  cells.push(others, listOf(packing, [...takers.keys()]), ...takers.values());
  return index;
}

/** As `packLeaf`, for a pattern that is one endpoint's alone, as nearly all are. */
function packOnly(packing: Packing, { id, methods }: Endpoint): number {
  const { cells } = packing;
  const names = methods.includes("GET") && !methods.includes("HEAD") ? [...methods, "HEAD"] : methods;
  const index = cells.length;
  cells.push(methods.length === 0 ? id : NONE, listOf(packing, names));
  for (let i = 0; i < names.length; i++) cells.push(id);
  return index;
}

/** Lists of methods are few, and the same for most routes: kept once, they stay near. */
function listOf({ lists, methods }: Packing, names: readonly string[]): number {
  const key = names.join();
  let list = lists.get(key);
  if (list === undefined) lists.set(key, (list = methods.push(names) - 1));
  return list;
}

const NO_TREE: Tree = Object.freeze({ cells: new Int32Array(0), chars: new Uint8Array(0), methods: [], marks: new Int32Array(0) });
const ANY_SEGMENT = String.fromCharCode(ANY);
const SLASH = 0x2f;
