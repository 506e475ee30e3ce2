/**
 * Proves which routes of a configuration are unreachable or bypassed, and takes the proof of the configuration before
 * over where nothing has changed that it depends on.
 */
import { createHash } from "node:crypto";
import { ROUTES_OF_A_STEP } from "../config/declarations.ts";
import type { Service } from "../config/model.ts";
import type { ValidConfig } from "../gateway/compile_types.ts";
import { entryOf } from "../gateway/snapshot.ts";
import { proveRoutes, type Proof } from "../route/overlaps.ts";
import type { TableEntry } from "../route/table.ts";
import { destinations, type WrittenRoute } from "./written.ts";

/** Of one gateway: what was proved last. */
export interface ProofMemory {
  kept: object | null;
}

interface KeptProof {
  readonly key: string;
  /** Routes by their places in the configuration: nothing of that is kept. */
  readonly proof: Proof<number>;
  /** The bypasses that were accepted. */
  readonly accepted: readonly (readonly [guarded: number, taker: number])[];
}

interface ProofTools {
  readonly valid: ValidConfig;
  readonly memory: ProofMemory | undefined;
  /** See `ProofQuestion`. Is asked again for each bypass that it has accepted. */
  readonly isAccepted: (guarded: WrittenRoute, taker: WrittenRoute) => boolean;
}

export function* provenRoutes(
  routes: readonly WrittenRoute[],
  { valid, memory, isAccepted }: ProofTools,
): Generator<undefined, Proof<WrittenRoute>, undefined> {
  const key = memory === undefined ? "" : yield* keyOf(routes, valid);
  const known = memory?.kept as KeptProof | null | undefined;
  if (known?.key === key) {
    for (const [guarded, taker] of known.accepted) isAccepted(routes[guarded]!, routes[taker]!);
    return yield* placed(known.proof, routes);
  }
  const entries: TableEntry<number>[] = [];
  for (let i = 0; i < routes.length; i++) {
    const { service, route } = routes[i]!;
    entries.push(entryOf(service, route, i, valid));
    if (i % ROUTES_OF_A_STEP === 0) yield;
  }
  const accepted: (readonly [number, number])[] = [];
  const destinationOf = destinations();
  // Equal sets are one object.
  const sets = new Map<string, ReadonlySet<string>>();
  const proof = yield* proveRoutes(entries, {
    guardsOf(i) {
      const { guardNames } = routes[i]!;
      const guards = sets.get(guardNames) ?? routes[i]!.guards;
      sets.set(guardNames, guards);
      return guards;
    },
    destinationOf: (i) => destinationOf(routes[i]!),
    isAccepted(guarded, taker) {
      const is = isAccepted(routes[guarded]!, routes[taker]!);
      if (is) accepted.push([guarded, taker]);
      return is;
    },
  });
  if (memory !== undefined) memory.kept = { key, proof, accepted } satisfies KeptProof;
  return yield* placed(proof, routes);
}

function* placed(
  { samples, unreachable, bypasses, steps }: Proof<number>,
  routes: readonly WrittenRoute[],
): Generator<undefined, Proof<WrittenRoute>, undefined> {
  const of = (i: number) => routes[i]!;
  const samplesOf = new Map<WrittenRoute, NonNullable<ReturnType<typeof samples.get>>>();
  for (const [i, sample] of samples) {
    if (i % ROUTES_OF_A_STEP === 0) yield;
    samplesOf.set(of(i), sample);
  }
  return {
    samples: samplesOf,
    unreachable: unreachable.map((each) => ({ ...each, target: of(each.target), takers: each.takers.map(of) })),
    bypasses: bypasses.map(({ target, takers }) => ({
      target: of(target),
      takers: takers.map((taker) => ({ ...taker, target: of(taker.target) })),
    })),
    steps,
  };
}

/**
 * Differs where a proof can differ: patterns, hosts, methods, conditions, destinations, accepted warnings and names;
 * and which guards are equal, whatever they are.
 */
function* keyOf(routes: readonly WrittenRoute[], { config }: ValidConfig): Generator<undefined, string, undefined> {
  const sum = createHash("sha256").update(JSON.stringify(config.global.acceptWarnings));
  const guardNumbers = new Numbers();
  const sets = new Numbers();
  const answers = new Numbers();
  const ofRoutes = new Int32Array(2 * routes.length);
  let before: Service | null = null;
  for (let i = 0; i < routes.length; i++) {
    const { service, plugins, guardNames, answering } = routes[i]!;
    if (service !== before) sum.update(partOf(service));
    if (i % ROUTES_OF_A_STEP === 0) yield;
    before = service;
    const count = sets.size;
    ofRoutes[2 * i] = sets.of(guardNames);
    ofRoutes[2 * i + 1] = answers.of(answering);
    if (sets.size === count) continue;
    const numbers = plugins.flatMap(({ guard }) => (guard === null ? [] : guardNumbers.of(guard))).sort();
    sum.update(`${numbers.join()};`);
  }
  const texts = [...answers.keys()];
  return sum.update(texts.join()).update(ofRoutes).digest("base64");
}

/** Numbers names in the order in which they are asked for. */
class Numbers extends Map<string, number> {
  of(name: string): number {
    const known = this.get(name);
    if (known !== undefined) return known;
    this.set(name, this.size);
    return this.size - 1;
  }
}

/** A service that has not changed is the same object. */
const parts = new WeakMap<Service, string>();

function partOf(service: Service): string {
  const known = parts.get(service);
  if (known !== undefined) return known;
  const { name, basePath, hosts, upstreams, upstreamPath, preserveHost, encodedSlashes, pathParameters } = service;
  const routes = service.routes.map((each) => [each.name, each.path, each.methods, each.match, each.upstreamPath]);
  const addresses = upstreams.map(({ host, port }) => [host, port]);
  const of = [name, basePath, hosts, addresses, upstreamPath, preserveHost, encodedSlashes, pathParameters, routes];
  const part = createHash("sha256").update(JSON.stringify(of)).digest("base64");
  parts.set(service, part);
  return part;
}
