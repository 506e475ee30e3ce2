/**
 * Random and broken responses, read by both HTTP/1.1 clients: their replies agree, or our own refuses what Node's
 * accepts.
 */
import type { Readable } from "node:stream";
import { expect, it, onTestFinished } from "vitest";
import { Fault } from "../../lib/base/errors.ts";
import type { Reply } from "../../lib/http/reply.ts";
import { forward } from "../../lib/upstream/attempts.ts";
import { manualClock } from "../support/clock.ts";
import { madeUpExchange } from "../support/exercise.ts";
import { socketOrigin } from "../support/origin.ts";
import { madeUpPeer, madeUpPool } from "../support/peer.ts";
import { random, type Random } from "../support/random.ts";
import { eventually } from "../support/raw_client.ts";

const CASES = Number(process.env.FUZZ_CASES ?? 500);
const SEED = Number(process.env.FUZZ_SEED ?? 7);

interface Case {
  readonly seed: number;
  readonly method: string;
  readonly pieces: readonly Buffer[];
}

/** The reply that a client receives; `whole` is false when its body broke off. */
interface Outcome {
  readonly fault: string | null;
  readonly head: string;
  readonly body: string;
  readonly trailers: string;
  readonly whole: boolean;
}

function madeUpCase(seed: number): Case {
  const dice = random(seed);
  let bytes = dice.list(0, dice.chance(0.15) ? 2 : 0, () => information(dice)).join("") + response(dice);
  if (dice.chance(0.1)) bytes += dice.pick(["garbage", "\r\n", response(dice)]);
  for (let i = dice.pick([0, 0, 0, 1, 1, 2, 4]); i > 0; i--) bytes = mutated(dice, bytes);
  return { seed, method: dice.chance(0.12) ? "HEAD" : "GET", pieces: split(dice, Buffer.from(bytes, "latin1")) };
}

function information(dice: Random): string {
  return `HTTP/1.1 ${dice.pick([100, 102, 103, 199])} Soon\r\n${fields(dice)}\r\n`;
}

function response(dice: Random): string {
  const body = dice.list(0, 3, () => "abcdefghij".repeat(dice.int(0, 12)).slice(0, dice.int(0, 120)));
  const text = body.join("");
  const version = dice.chance(0.12) ? "1.0" : "1.1";
  const start =
    `HTTP/${version} ` +
    (`${dice.pick([200, 200, 200, 201, 204, 205, 301, 304, 404, 500, 599, 700, 999])}` +
      `${dice.pick([" OK", " ", "", " Not so \xe4\t"])}\r\n`);
  switch (dice.int(0, 3)) {
    case 0:
      return `${start}${fields(dice)}Content-Length: ${text.length}\r\n${fields(dice)}\r\n${text}`;
    case 1:
      return `${start}${fields(dice)}\r\n${text}`;
    default: {
      const chunks = body
        .filter((chunk) => chunk !== "")
        .map((chunk) => `${dice.pick(["", "0", "000"])}${chunk.length.toString(16)}${extension(dice)}\r\n${chunk}\r\n`);
      return (
        `${start}${fields(dice)}transfer-encoding: ` +
        (`${dice.pick(["chunked", "Chunked"])}\r\n${fields(dice)}\r\n${chunks.join("")}0${extension(dice)}\r\n` +
          `${dice.chance(0.3) ? fields(dice) : ""}\r\n`)
      );
    }
  }
}

function extension(dice: Random): string {
  return dice.chance(0.75)
    ? ""
    : dice.pick([";a", ";a=b", ';a="b;c"', ";a=b;c=d", "; a=b", ";", ';a="b\\"c"', " ", ";a =b", ';a="'] as const);
}

const FIELDS = [
  "X-A: b",
  "x-a:b",
  "X-Empty:",
  "X-Pad:  \t padded \t ",
  "X-Latin: caf\xe9",
  "Connection: close",
  "Connection: keep-alive",
  "Connection: X-A, close",
  "Keep-Alive: timeout=5",
  "Keep-Alive: timeout=0",
  "Content-Length: 5",
  "Content-Length: 05",
  "Content-Length: 5, 5",
  "Content-Length:",
  "Transfer-Encoding: chunked",
  "Transfer-Encoding: gzip, chunked",
  "Transfer-Encoding: identity",
  "Upgrade: websocket",
  "Set-Cookie: a=b; c",
  "Trailer: X-Sum",
  "X Y: z",
  "X-Y : z",
  ": z",
  "X-Nul: \0",
  "X-Cr: a\rb",
  "X-Lf: a\nb",
  " folded",
  "\tfolded",
  "X-Del: \x7f",
  "X(: b",
  "Date: Mon, 01 Jan 2024 00:00:00 GMT",
  "Via: 1.0 other",
] as const;

function fields(dice: Random): string {
  // Harmless lines are far more frequent, because one flaw is enough for a head to be refused.
  const line = () =>
    dice.chance(0.9) ? dice.pick([...FIELDS.slice(0, 9), "Set-Cookie: a=b; c", "Via: 1.0 other"]) : dice.pick(FIELDS);
  return dice
    .list(0, 3, line)
    .map((text) => `${text}\r\n`)
    .join("");
}

function mutated(dice: Random, bytes: string): string {
  const at = dice.int(0, bytes.length);
  const length = dice.int(1, 4);
  switch (dice.int(0, 5)) {
    case 0:
      return bytes.slice(0, at) + bytes.slice(at + length);
    case 1:
      return bytes.slice(0, at) + bytes.slice(at, at + 12 * length) + bytes.slice(at);
    case 2:
      return (
        bytes.slice(0, at) +
        dice.pick([
          "\r",
          "\n",
          "\r\n",
          "\0",
          " ",
          "\t",
          ":",
          ";",
          ",",
          "0",
          "a",
          "\x7f",
          "\xff",
          "\r\n\r\n",
          "-",
          "+",
        ]) +
        bytes.slice(at)
      );
    case 3:
      return bytes.slice(0, at) + String.fromCharCode(dice.int(0, 255)) + bytes.slice(at + 1);
    case 4:
      return bytes.slice(0, at);
    default: {
      const breaks = [...bytes.matchAll(/\r\n/g)];
      if (breaks.length === 0) return bytes;
      const { index } = dice.pick(breaks);
      return (
        bytes.slice(0, index) + dice.pick(["\n", "\r", "\r\r\n", "\n\r", " \r\n", "\r\n ", ""]) + bytes.slice(index + 2)
      );
    }
  }
}

function split(dice: Random, bytes: Buffer): Buffer[] {
  const pieces: Buffer[] = [];
  const most = dice.pick([1, 4, 40, 400, 4000]);
  for (let at = 0; at < bytes.length;) {
    // Long responses come in fewer pieces, because single bytes take long.
    const end = Math.min(bytes.length, at + Math.max(dice.int(1, most), Math.ceil(bytes.length / 60)));
    pieces.push(bytes.subarray(at, end));
    at = end;
  }
  return pieces;
}

async function outcome(reply: Promise<Reply>): Promise<Outcome> {
  const nothing = { head: "", body: "", trailers: "", whole: false };
  let given: Reply;
  try {
    given = await reply;
  } catch (fault) {
    if (!(fault instanceof Fault)) throw fault;
    return { fault: fault.code, ...nothing };
  }
  const head = JSON.stringify([given.status, given.reason, given.headers]);
  let body = "";
  try {
    if (Buffer.isBuffer(given.body)) body = given.body.toString("latin1");
    else if (given.body !== null)
      for await (const chunk of given.body as Readable) body += (chunk as Buffer).toString("latin1");
  } catch {
    return { fault: "broken", head, body, trailers: "", whole: false };
  }
  return { fault: null, head, body, trailers: JSON.stringify(given.trailers?.() ?? []), whole: true };
}

it(
  `both HTTP/1.1 clients give the same reply to ${CASES} random responses from seed ${SEED}, ` +
    `or the gateway's own refuses what Node's accepts`,
  { timeout: 120_000 },
  async () => {
    let sending: readonly Buffer[] = [];
    const upstream = await socketOrigin((socket) => {
      socket.once("data", () => void talk(sending));
      const talk = async (pieces: readonly Buffer[]) => {
        for (const piece of pieces) {
          if (!socket.writable) return;
          await new Promise((resolve) => socket.write(piece, resolve));
          await new Promise((resolve) => setImmediate(resolve));
        }
        socket.end();
      };
    });
    const clock = manualClock();
    const pools = {
      wire: madeUpPool({ port: upstream.port }, 1, clock),
      node: madeUpPool({ port: upstream.port }, 1, clock),
    };
    onTestFinished(async () => {
      pools.wire.destroy();
      pools.node.destroy();
      await upstream.close();
    });
    const ask = async (client: "wire" | "node", { method }: Case) => {
      // Of the last case; what is left of it is not this one's. A reply without a body may be there before its
      // connection is free.
      await eventually(() => pools[client].leases.leased === 0, "the end of the last case");
      pools[client].dropIdle();
      const options = {
        clock,
        client,
        connectMs: 10_000,
        responseMs: 10_000,
        idleMs: 10_000,
        tryMs: 0,
        preserveHost: false,
        viaName: "gw",
      };
      return outcome(forward(madeUpExchange({ method }), madeUpPeer("u", pools[client]), options, Infinity));
    };
    const dice = random(SEED);
    const tally = { same: 0, refused: 0, neither: 0 };
    for (let i = 0; i < CASES; i++) {
      const made = madeUpCase(dice.int(0, 2 ** 31 - 1));
      sending = made.pieces;
      const wire = await ask("wire", made);
      const node = await ask("node", made);
      const shown = { seed: made.seed, method: made.method, bytes: Buffer.concat([...made.pieces]).toString("latin1") };
      if (wire.whole) {
        expect({ ...shown, ...wire }).toEqual({ ...shown, ...node });
        tally.same++;
      } else {
        if (node.whole) tally.refused++;
        else tally.neither++;
        // What has got through before it broke off is a part of what node gives.
        if (node.whole && wire.head !== "")
          expect({ ...shown, head: wire.head, begins: node.body.startsWith(wire.body) }).toEqual({
            ...shown,
            head: node.head,
            begins: true,
          });
      }
    }
    // Neither of them refuses everything, and the gateway's own refuses little more than node.
    expect(tally.same).toBeGreaterThan(CASES / 4);
    expect(tally.neither).toBeGreaterThan(CASES / 20);
    if (process.env.FUZZ_CASES !== undefined) console.log(tally);
  },
);
