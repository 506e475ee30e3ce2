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
import type { SampleRequest } from "../route/sample_requests.ts";
import { destinations, guardsIn, type WrittenRoute, type WrittenService } from "./written.ts";

/** Of one gateway: what was proved last. */
export interface ProofMemory {
  kept: object | null;
}

interface KeptProof {
  readonly key: string;
  /** What the services of the last configuration with this key were read to, which this does not keep. */
  services: readonly WeakRef<WrittenService>[];
  /** The accepted warnings, as JSON. */
  readonly accepting: string;
  /** Routes by their places in the configuration: nothing of that is kept. */
  readonly proof: Proof<number>;
  /** The bypasses that were accepted. */
  readonly accepted: readonly (readonly [guarded: number, taker: number])[];
}

interface ProofTools {
  readonly valid: ValidConfig;
  readonly services: readonly WrittenService[];
  readonly memory: ProofMemory | undefined;
  /** See `ProofQuestion`. Is asked again for each bypass that it has accepted. */
  readonly isAccepted: (guarded: WrittenRoute, taker: WrittenRoute) => boolean;
}

/** Requests for those routes that are reached. */
export interface Samples extends Iterable<readonly [WrittenRoute, SampleRequest]> {
  get(route: WrittenRoute): SampleRequest | undefined;
}

export type RouteProof = Omit<Proof<WrittenRoute>, "samples"> & { readonly samples: Samples };

export function* provenRoutes(
  routes: readonly WrittenRoute[],
  { valid, services, memory, isAccepted }: ProofTools,
): Generator<undefined, RouteProof, undefined> {
  const known = memory?.kept as KeptProof | null | undefined;
  const accepting = JSON.stringify(valid.config.global.acceptWarnings);
  const isAlike = known?.accepting === accepting && (yield* areAlike(known.services, services));
  const key = memory === undefined || isAlike ? "" : yield* keyOf(routes, accepting);
  const refs = memory === undefined ? [] : services.map((each) => new WeakRef(each));
  if (known && (isAlike || known.key === key)) {
    known.services = refs;
    for (const [guarded, taker] of known.accepted) isAccepted(routes[guarded]!, routes[taker]!);
    return placed(known.proof, routes);
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
  if (memory !== undefined) memory.kept = { key, accepting, services: refs, proof, accepted } satisfies KeptProof;
  return placed(proof, routes);
}

/** Holds nothing for each route: mostly nobody asks for one of them. */
class PlacedSamples implements Samples {
  readonly #samples: ReadonlyMap<number, SampleRequest>;
  readonly #routes: readonly WrittenRoute[];
  #ofRoutes: ReadonlyMap<WrittenRoute, SampleRequest> | null = null;

  constructor(samples: ReadonlyMap<number, SampleRequest>, routes: readonly WrittenRoute[]) {
    this.#samples = samples;
    this.#routes = routes;
  }

  *[Symbol.iterator](): Generator<readonly [WrittenRoute, SampleRequest], void, undefined> {
    for (const [i, sample] of this.#samples) yield [this.#routes[i]!, sample];
  }

  get(route: WrittenRoute): SampleRequest | undefined {
    this.#ofRoutes ??= new Map(this);
    return this.#ofRoutes.get(route);
  }
}

function placed({ samples, unreachable, bypasses, steps }: Proof<number>, routes: readonly WrittenRoute[]): RouteProof {
  const of = (i: number) => routes[i]!;
  return {
    samples: new PlacedSamples(samples, routes),
    unreachable: unreachable.map((each) => ({ ...each, target: of(each.target), takers: each.takers.map(of) })),
    bypasses: bypasses.map(({ target, takers }) => ({
      target: of(target),
      takers: takers.map((taker) => ({ ...taker, target: of(taker.target) })),
    })),
    steps,
  };
}

/**
 * Whether the keys of two configurations are the same, without a look at the guards of all routes: most services are
 * the same objects, and where another one has other guards than before, those of before and of now are nowhere else.
 */
function* areAlike(
  before: readonly WeakRef<WrittenService>[],
  now: readonly WrittenService[],
): Generator<undefined, boolean, undefined> {
  if (before.length !== now.length) return false;
  const exchanged = new Exchanged();
  const same: WrittenService[] = [];
  for (const [i, service] of now.entries()) {
    yield;
    const was = before[i]!.deref();
    if (was === service) same.push(service);
    else if (was === undefined || !exchanged.takes(was, service)) return false;
  }
  for (const { routes } of exchanged.guards.size === 0 ? [] : same) {
    yield;
    if (routes.some(({ plugins }) => plugins.some(({ guard }) => guard !== null && exchanged.guards.has(guard))))
      return false;
  }
  return true;
}

/** Guards in place of others: each stands for one of before, and no two for the same. */
class Exchanged {
  /** Those that are not what they were, of before and of now. */
  readonly guards = new Set<string>();
  readonly #now = new Map<string, string>();
  readonly #before = new Map<string, string>();

  /** Whether the two services differ in nothing but such guards. */
  takes(was: WrittenService, is: WrittenService): boolean {
    if (partOf(was.service) !== partOf(is.service)) return false;
    return is.routes.every(({ plugins, answering }, i) => {
      const former = was.routes[i]!;
      const [before, now] = [guardsIn(former.plugins), guardsIn(plugins)];
      const isAlike = former.answering === answering && before.length === now.length;
      return isAlike && before.every((guard, at) => this.#pair(guard, now[at]!));
    });
  }

  #pair(before: string, now: string): boolean {
    if ((this.#now.get(before) ?? now) !== now || (this.#before.get(now) ?? before) !== before) return false;
    this.#now.set(before, now);
    this.#before.set(now, before);
    if (before !== now) this.guards.add(before).add(now);
    return true;
  }
}

/**
 * Differs where a proof can differ: patterns, hosts, methods, conditions, destinations, accepted warnings and names;
 * and which guards are equal, whatever they are.
 */
function* keyOf(routes: readonly WrittenRoute[], accepting: string): Generator<undefined, string, undefined> {
  const sum = createHash("sha256").update(accepting);
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
  const addresses = upstreams.map((each) => ("srv" in each ? [each.srv] : [each.host, each.port]));
  const of = [name, basePath, hosts, addresses, upstreamPath, preserveHost, encodedSlashes, pathParameters, routes];
  const part = createHash("sha256").update(JSON.stringify(of)).digest("base64");
  parts.set(service, part);
  return part;
}
