/**
 * Simulates the locks of a rate limiter under many processors: each works on a request for a while, then takes the lock
 * of one shard. Like the real lock it is not fair, and a processor that has waited too long sleeps until it is woken.
 */
import { random } from "../support/random.ts";

export interface LockModel {
  readonly processors: number;
  /** Locks; each request takes one of them, at random. One: all requests are of one caller. */
  readonly shards: number;
  /**
   * Processor time of a request without its decision, in microseconds. Single requests take between half and one and a
   * half of it.
   */
  readonly workMicros: number;
  /** Time for which the lock is held if its memory was last written by the same processor, and by another one. */
  readonly holdMicros: number;
  readonly movedMicros: number;
  /** A processor that has waited this long sleeps. */
  readonly spinMicros: number;
  /** From its wake-up to its next try. */
  readonly wakeMicros: number;
  readonly requests: number;
}

export interface LockFigures {
  /** Requests a second, as a share of what the processors would answer if none waited. */
  readonly share: number;
  /** Time from wanting the lock to having it, for each request, in microseconds. */
  readonly meanWait: number;
  readonly p99Wait: number;
  /** Share of requests that slept. */
  readonly slept: number;
  /** Share of time for which the busiest lock was held. */
  readonly busy: number;
}

interface Shard {
  owner: number;
  lastOwner: number;
  heldMicros: number;
  readonly spinning: number[];
  readonly sleeping: number[];
}

const FREE = -1;

export function simulate(model: LockModel): LockFigures {
  const dice = random(7);
  const shards = Array.from({ length: model.shards }, (): Shard => ({
    owner: FREE,
    lastOwner: FREE,
    heldMicros: 0,
    spinning: [],
    sleeping: [],
  }));
  const work = () => model.workMicros * (0.5 + dice.next());
  /** The next event of each processor; Infinity: it waits for another one. */
  const due = Array.from({ length: model.processors }, work);
  const next = Array.from({ length: model.processors }, () => want);
  const at = new Array<Shard>(model.processors);
  const wantedAt = new Array<number>(model.processors);
  const waits: number[] = [];
  let [now, done, sleeps] = [0, 0, 0];

  function plan(processor: number, delay: number, then: (processor: number) => void): void {
    due[processor] = now + delay;
    next[processor] = then;
  }
  function want(processor: number): void {
    at[processor] = shards[dice.int(0, shards.length - 1)]!;
    wantedAt[processor] = now;
    attempt(processor);
  }
  function attempt(processor: number): void {
    const shard = at[processor]!;
    if (shard.owner === FREE) return own(processor, shard);
    shard.spinning.push(processor);
    plan(processor, model.spinMicros, sleep);
  }
  function own(processor: number, shard: Shard): void {
    const hold = shard.lastOwner === processor || shard.lastOwner === FREE ? model.holdMicros : model.movedMicros;
    shard.owner = processor;
    shard.lastOwner = processor;
    shard.heldMicros += hold;
    waits.push(now - wantedAt[processor]!);
    plan(processor, hold, release);
  }
  function sleep(processor: number): void {
    const shard = at[processor]!;
    shard.spinning.splice(shard.spinning.indexOf(processor), 1);
    shard.sleeping.push(processor);
    sleeps++;
    plan(processor, Infinity, attempt);
  }
  function release(processor: number): void {
    const shard = at[processor]!;
    shard.owner = FREE;
    const woken = shard.sleeping.shift();
    if (woken !== undefined) plan(woken, model.wakeMicros, attempt);
    // Any of those that spin may be the first to see it.
    const spinner =
      shard.spinning.length === 0 ? undefined : shard.spinning.splice(dice.int(0, shard.spinning.length - 1), 1)[0]!;
    if (spinner !== undefined) own(spinner, shard);
    done++;
    plan(processor, work(), want);
  }

  while (done < model.requests) {
    let first = 0;
    for (let each = 1; each < due.length; each++) if (due[each]! < due[first]!) first = each;
    now = due[first]!;
    next[first]!(first);
  }
  waits.sort((a, b) => a - b);
  return {
    share: (done * (model.workMicros + model.holdMicros)) / (now * model.processors),
    meanWait: waits.reduce((sum, each) => sum + each, 0) / waits.length,
    p99Wait: waits[Math.floor(waits.length * 0.99)]!,
    slept: sleeps / done,
    busy: Math.max(...shards.map(({ heldMicros }) => heldMicros)) / now,
  };
}
