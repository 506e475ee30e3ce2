/**
 * Reads decisions, and takes them over where a reload changes how many are kept.
 */
import type { Clock } from "../base/clock.ts";
import { createTimeSlices, inSlices, paced } from "../base/time_slices.ts";
import { pluginPath } from "../config/plugin_place.ts";
import type { Notes } from "../http/exchange.ts";
import { REQUEST_ID } from "../http/request_id.ts";
import {
  BEFORE_NAME,
  BETWEEN_TEXTS,
  BY_PLUGIN,
  CUT,
  HASHED_ID,
  idText,
  SLOT_BYTES,
  STEP_BYTES,
  TEXTS_AT,
  TRACED,
  type DecisionRing,
  type Decisions,
} from "./decisions.ts";
import type { Metrics } from "./metrics_plan.ts";

/** A part of the time of a request, in milliseconds. */
interface Timed {
  /** Since its head had arrived. */
  readonly at_ms: number;
  readonly ms: number;
}

/** Why a request got what it got. A name is null where there was none, or it is forgotten. */
export interface RequestDecision {
  readonly id: string;
  /** When it ended (RFC 3339). */
  readonly time: string;
  readonly client: string | null;
  /** Null, like host and path, for a request that could not be read. */
  readonly method: string | null;
  readonly host: string | null;
  /** As in the access log. Its end, like that of the host, may be cut: then "…" is the last character. */
  readonly path: string | null;
  readonly service: string | null;
  readonly route: string | null;
  /** Its identity, from an auth plugin; "?" stands for characters that are not printable ASCII, "…" for a cut end. */
  readonly caller: string | null;
  /** What the plugin `mcp` has read, cut and with "?" as the caller; null: it has read nothing. */
  readonly mcp: Notes["mcp"];
  /** Null: the client disconnected before a reply. */
  readonly status: number | null;
  readonly code: string | null;
  /** The kind of the plugin that has answered, "upstream" or "gateway"; null: nobody has. */
  readonly by: string | null;
  /** Which instance of the kind: "services.shop.routes.items.plugins.per-ip", by its id, or `rate_limit#2`. */
  readonly plugin: string | null;
  /** Of a refusal: the member of the plugin's `config` that has decided, such as "limit_min"; null: none alone has. */
  readonly rule: string | null;
  /** The latest, in order; `status` is null where there was no response. */
  readonly tries: readonly (Timed & { readonly upstream: string | null; readonly status: number | null })[];
  /** Those that held the request for 0.1 ms or more before they passed it on or answered, in order. */
  readonly plugins: readonly (Timed & Pick<RequestDecision, "by" | "plugin">)[];
  readonly ms: number;
  /** Names the configuration that has decided. */
  readonly digest: string;
  /** Of its trace, as the access log has it; null: it has none, or other texts left no room. */
  readonly trace_id: string | null;
}

/** Of all searches: many at once do not hold up requests for longer than one does. */
const nextSlice = createTimeSlices();

/** The latest request with this id; null: none of those that are remembered. */
export async function findDecision(
  { decisions, inForce }: Pick<Metrics, "decisions" | "inForce">,
  id: string,
): Promise<RequestDecision | null> {
  if (!isId(id)) return null;
  const known = await remembered({ decisions, inForce });
  if (known === null) return null;
  const found = await slotWithId(known.ring, id, known.ring.last);
  return found && decisionOf(found.slot, id, known.names);
}

/** An id, or what a list has in place of one that is too long for a slot. */
function isId(text: string): boolean {
  return REQUEST_ID.test(text) || HASHED_ID.test(text);
}

/** The decisions that can be read; null: none are remembered. */
export async function remembered({ decisions, inForce }: Pick<Metrics, "decisions" | "inForce">) {
  const ring = decisions?.ring ?? null;
  if (decisions === null || ring === null) return null;
  decisions.kept?.restore();
  await decisions.moved;
  await nextSlice();
  await learnNames(decisions, inForce);
  return { ring, names: decisions.names as ReadonlyMap<number, string>, slice: paced(nextSlice) };
}

/** The latest slot with this id, of those that are not newer than `newest`, and how many of those are newer than it. */
export async function slotWithId(
  ring: DecisionRing,
  id: string,
  newest: number,
): Promise<{ readonly slot: Buffer; readonly age: number } | null> {
  if (!isId(id)) return null;
  const line = Buffer.from(`${HASHED_ID.test(id) ? id : idText(id)}\n`, "latin1");
  const slice = paced(nextSlice);
  for (let age = 0; age < ring.count; age++) {
    if (age % 1_000 === 999) await slice();
    const number = ring.before(newest, age);
    const texts = ring.at(number) + TEXTS_AT;
    if (ring.bytes[texts] !== line[0] || ring.bytes.compare(line, 0, line.length, texts, texts + line.length) !== 0)
      continue;
    const slot = copied(ring, number);
    if (slot !== null && slot.subarray(TEXTS_AT, TEXTS_AT + line.length).equals(line)) return { slot, age };
  }
  return null;
}

/** Whose names were learned last, or are being learned. */
const learned = new WeakMap<Decisions, { readonly inForce: Metrics["inForce"]; readonly done: Promise<void> }>();
/** Stands for no name: it is forgotten with all others. */
const LEARNED = -1;

/** Threads write numbers for names: those of a configuration. In slices: there may be hundreds of thousands. */
export function learnNames(decisions: Decisions, inForce: Metrics["inForce"]): Promise<void> {
  const known = learned.get(decisions);
  if (known?.inForce === inForce && decisions.names.has(LEARNED)) return known.done;
  const { services, instances } = inForce;
  let count = instances.size;
  for (const { upstreams, endpoints, routes } of services.values())
    count += upstreams.size + endpoints.length + routes.size + 1;
  decisions.maxNames = Math.max(decisions.maxNames, 2 * count);
  const done = learnAll(decisions, inForce);
  learned.set(decisions, { inForce, done });
  return done;
}

/** Once more where all were forgotten meanwhile. */
async function learnAll(decisions: Decisions, inForce: Metrics["inForce"]): Promise<void> {
  for (let round = 0; round < 2; round++) {
    decisions.names.set(LEARNED, "");
    await inSlices(learnSteps(decisions, namesOf(inForce)), paced(nextSlice));
    if (decisions.names.has(LEARNED)) return;
  }
}

/** Names of a step of well below a millisecond. */
const NAMES_OF_STEP = 100;

export function* learnSteps(decisions: Decisions, names: Iterable<string>): Generator<void, void> {
  let done = 0;
  for (const name of names) {
    if (done++ % NAMES_OF_STEP === NAMES_OF_STEP - 1) yield;
    decisions.numberOf(name);
  }
}

function* namesOf({ services, instances }: Metrics["inForce"]): Generator<string, void> {
  yield "upstream";
  yield "gateway";
  yield* instances;
  for (const [service, { upstreams, endpoints, routes }] of services) {
    yield service;
    yield* upstreams.keys();
    yield* endpoints;
    yield* routes.keys();
  }
}

/** Null: it is being written, has another number, or was given up. */
export function copied(ring: DecisionRing, number: number): Buffer | null {
  const at = ring.at(number);
  if (Atomics.load(ring.words, at >> 2) !== number) return null;
  const slot = Buffer.from(ring.bytes.subarray(at, at + SLOT_BYTES));
  return Atomics.load(ring.words, at >> 2) === number ? slot : null;
}

/** `id`: as the slot has it, if it is not given. */
export function decisionOf(slot: Buffer, id: string | null, names: ReadonlyMap<number, string>): RequestDecision {
  const status = slot.readUInt16LE(4);
  const { count, end } = stepsIn(slot);
  const [time, ms, digest, service, route, by] = Array.from({ length: 6 }, (_, i) =>
    slot.readDoubleLE(8 * (i + 1)),
  ) as [number, number, number, number, number, number];
  const lines = slot.toString("latin1", TEXTS_AT, end - count * STEP_BYTES).split("\n", 6);
  const [code, rule, caller, mcp] = (lines[3] ?? "").split(String.fromCharCode(BETWEEN_TEXTS)).map(shown);
  const [, client, method, , host, path] = lines.map(shown);
  const answerer = answererOf(names.get(by));
  const tries: RequestDecision["tries"][number][] = [];
  const plugins: RequestDecision["plugins"][number][] = [];
  for (let at = end - count * STEP_BYTES; at < end; at += STEP_BYTES) {
    const high = slot.readUInt32LE(at + 4);
    const name = names.get((high >>> 10) * 2 ** 32 + slot.readUInt32LE(at));
    const timed: Timed = { at_ms: slot.readUInt32LE(at + 8) / 100, ms: slot.readUInt32LE(at + 12) / 100 };
    const stepStatus = high & BY_PLUGIN;
    if (stepStatus === BY_PLUGIN) plugins.push({ ...answererOf(name), ...timed });
    else tries.push({ upstream: name ?? null, status: stepStatus || null, ...timed });
  }
  return {
    id: id ?? lines[0]!,
    time: new Date(time).toISOString(),
    client: client ?? null,
    method: method ?? null,
    host: host ?? null,
    path: path ?? null,
    service: names.get(service) ?? null,
    route: names.get(route) ?? null,
    caller: caller ?? null,
    mcp: mcpOf(mcp ?? null),
    status: status || null,
    code: code ?? null,
    ...answerer,
    rule: rule ?? null,
    tries,
    plugins,
    ms: rounded(ms),
    digest: digest.toString(16).padStart(12, "0"),
    trace_id: end === SLOT_BYTES ? null : traceAt(slot, end),
  };
}

function mcpOf(text: string | null): RequestDecision["mcp"] {
  if (text === null) return null;
  const [method = "", ...name] = text.split(BEFORE_NAME);
  return { method, name: name.length === 0 ? null : name.join(BEFORE_NAME) };
}

/** How many steps a slot has, and where they end. */
function stepsIn(slot: Buffer): { readonly count: number; readonly end: number } {
  const word = slot.readUInt16LE(6);
  return { count: word & (TRACED - 1), end: (word & TRACED) === 0 ? SLOT_BYTES : SLOT_BYTES - STEP_BYTES };
}

function traceAt(slot: Buffer, at: number): string {
  return [0, 4, 8, 12]
    .map((byte) =>
      slot
        .readUInt32LE(at + byte)
        .toString(16)
        .padStart(8, "0"),
    )
    .join("");
}

/** Whether a slot that comes from a file is one that `decisionOf` can read. */
export function isSound(slot: Buffer): boolean {
  const digest = slot.readDoubleLE(24);
  const { count: steps, end } = stepsIn(slot);
  if (!(Math.abs(slot.readDoubleLE(8)) <= MAX_TIME) || !Number.isFinite(slot.readDoubleLE(16))) return false;
  if (!(digest >= 0 && digest < 2 ** 48) || slot.readUInt16LE(4) > 999) return false;
  return end - steps * STEP_BYTES >= TEXTS_AT && slot.readUInt16LE(6) < 2 * TRACED;
}

/** Of a date, in milliseconds since 1970 (ECMAScript §21.4.1.1). */
const MAX_TIME = 8.64e15;

function shown(text: string): string | null {
  return text.charCodeAt(text.length - 1) === CUT ? `${text.slice(0, -1)}…` : text || null;
}

/** See `Scope.key`; the last is its id, or its number among its kind. */
type InstanceKey = [level: string, service: string | null, route: string | null, kind: string, which: string | number];

/** `name`: the key of an instance, or who else has answered. */
function answererOf(name = ""): Pick<RequestDecision, "by" | "plugin"> {
  if (!name.startsWith('["')) return { by: name || null, plugin: null };
  const [, service, route, kind, which] = JSON.parse(name) as InstanceKey;
  const isNamed = typeof which === "string";
  return { by: kind, plugin: pluginPath({ service, route }, isNamed ? which : kind, isNamed ? 0 : which) };
}

/** Never negative: a clock may have stepped back. */
function rounded(ms: number): number {
  return Math.max(0, Math.round(ms * 100) / 100);
}

/** Of the number in front of a slot, which each ring gives. */
const NUMBER_BYTES = 4;
/** How long other threads may go on with the ring before, in milliseconds. */
const CHANGE_MS = 1_000;

/**
 * To be called before another configuration takes effect, when the names of this one are learned: they stay known.
 * Returns what is to be called afterwards: the newest decisions are taken over, in slices, if another number of them is
 * kept. The promise never rejects.
 */
export function followDecisions({ decisions }: Pick<Metrics, "decisions">, clock: Clock): () => Promise<void> {
  if (decisions === null) return () => Promise.resolve();
  decisions.kept?.restore();
  const former = decisions.ring;
  return () => {
    const { ring, moved } = decisions;
    if (former === null || ring === null || former.count === ring.count) return moved;
    const newest = former.last;
    // What other threads have ended before they had the new configuration.
    clock.after(CHANGE_MS, () => {
      const late = (former.last - newest + former.lap) % former.lap;
      for (let age = Math.min(late, former.count) - 1; age >= 0; age--)
        move(former, former.before(former.last, age), ring, null);
    });
    return (decisions.moved = moved.then(() => moveAll(former, newest, ring)));
  };
}

/** In slices: a million takes a second. `ring` has left its first numbers to them. */
export async function moveAll(from: DecisionRing, newest: number, ring: DecisionRing): Promise<void> {
  const most = Math.min(from.count, ring.count);
  const slice = paced(nextSlice);
  for (let age = 0; age < most; age++) {
    if (age % 1_000 === 999) await slice();
    move(from, from.before(newest, age), ring, most - age);
  }
}

/** `to`: a number that was kept free for it; null: the next one. */
function move(from: DecisionRing, number: number, ring: DecisionRing, to: number | null): void {
  const slot = copied(from, number);
  if (slot === null) return;
  const taken = to ?? ring.begin();
  const at = ring.at(taken);
  // Requests of late may have come round to it.
  if (to !== null && Atomics.compareExchange(ring.words, at >> 2, 0, -to) !== 0) return;
  slot.copy(ring.bytes, at + NUMBER_BYTES, NUMBER_BYTES);
  ring.end(taken);
}
