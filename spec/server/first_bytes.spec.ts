/** The first bytes of a connection, which come in chunks of any size. */
import type { Socket } from "node:net";
import { PassThrough } from "node:stream";
import { expect, it } from "vitest";
import { readFirstBytes } from "../../lib/server/first_bytes.ts";
import { manualClock } from "../support/clock.ts";

it("gives all bytes so far, and copies each of them few times", async () => {
  const connection = new PassThrough();
  const places = new Set<string>();
  const buffers = new Set<ArrayBufferLike>();
  let calls = 0;
  const all = Buffer.from(Array.from({ length: 2_000 }, (_none, i) => i & 255));
  const decided = new Promise<Buffer>((resolve) => {
    readFirstBytes(
      connection as unknown as Socket,
      {
        clock: manualClock(),
        drain: { add() {}, remove() {} },
        receiving: () => ({ limits: { headersTimeoutMs: 1_000 } }),
      },
      {
        read(bytes) {
          calls++;
          // Held, so that no other buffer takes the same place.
          buffers.add(bytes.buffer);
          places.add(`${[...buffers].indexOf(bytes.buffer)} ${bytes.byteOffset}`);
          return bytes.length === all.length ? "all" : null;
        },
        decided: (_found, bytes) => resolve(bytes),
        late: () => expect.unreachable(),
      },
    );
  });
  for (const byte of all) {
    connection.write(Buffer.of(byte));
    await new Promise((resolve) => setImmediate(resolve));
  }
  expect(await decided).toEqual(all);
  expect(calls).toBe(all.length);
  // Each time that the room is too small.
  expect(places.size).toBeLessThanOrEqual(12);
});
