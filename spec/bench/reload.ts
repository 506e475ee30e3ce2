/**
 * Replaces the configuration file five times a second under load: no request may be lost, no upstream connection
 * reopened, no memory leaked, no rate limit reset, no WebSocket closed.
 */
import net from "node:net";
import type { AnyConfigInput } from "../../lib/config/model.ts";
import { openLoop, pause, percentiles, printTable, request, secondsOf, until } from "./load.ts";
import { withProcesses } from "./processes.ts";

const MB = 1024 * 1024;
const PER_SECOND = 500;
const EVERY_MS = 200;
const LIMIT = 5;
const MAX_GROWTH = 4 * MB;

/** Takes the seconds it lasts as its first word, 10 by default. Prints its figures; true when the promise holds. */
export async function reload(words: readonly string[]): Promise<boolean> {
  const seconds = secondsOf(words, 10);
  return withProcesses(async ({ upstream, gateway: gatewayOf }) => {
    const origin = await upstream();
    const gateway = await gatewayOf(configured(0, origin.port));
    const socket = await webSocket(gateway.port);
    for (let i = 0; i < LIMIT; i++) await request(gateway.port, "/limited");
    const load = openLoop(gateway.port, "/x", PER_SECOND);
    let edits = 0;
    const edit = () => gateway.configure(configured(++edits, origin.port));
    const edited = async (ms: number) => {
      for (const endsAt = performance.now() + ms; performance.now() < endsAt; edit()) await pause(EVERY_MS);
    };
    // The first second warms up code and buffers.
    await edited(1_000);
    const before = { gateway: await gateway.figures(), origin: await origin.figures() };
    const beganAt = performance.now();
    await edited(seconds * 1000);
    const limited = await request(gateway.port, "/limited");
    await load.stop();
    await pause(EVERY_MS);
    const after = { gateway: await gateway.figures(), origin: await origin.figures() };
    const alive = await socket.echoes("still there");
    socket.close();

    const reloads = gateway.lines.filter(({ message }) => String(message) === "configuration reloaded").length;
    const refused = gateway.lines.filter(({ message }) => String(message).startsWith("reload refused")).length;
    const lost = load.outcomes.filter(({ said }) => said !== "200");
    const opened = after.origin.connections.total - before.origin.connections.total;
    const growth = after.gateway.heapBytes - before.gateway.heapBytes;
    // Under an uneven load a pool may still grow, though not with each reload.
    const fine = [
      lost.length === 0,
      opened < reloads / 2,
      growth < MAX_GROWTH,
      limited === "429",
      alive,
      refused === 0,
      reloads >= edits / 2,
    ];
    printTable(
      ["figure", "value", ""],
      [
        [
          "requests lost",
          lost.length === 0
            ? `0 of ${load.outcomes.length}`
            : `${lost.length} (${[...new Set(lost.map(({ said }) => said))].join(", ")})`,
        ],
        [
          "connections to the upstream",
          `${before.origin.connections.open} open before, ${after.origin.connections.open} after, ` +
            `${opened} opened meanwhile`,
        ],
        [
          "heap of the gateway",
          `${(before.gateway.heapBytes / MB).toFixed(1)} MiB before, ` +
            `${(after.gateway.heapBytes / MB).toFixed(1)} MiB after`,
        ],
        ["a used-up rate limit", `answers ${limited}`],
        ["a WebSocket from before", alive ? "echoes" : "is dead"],
        ["reloads refused", refused],
        ["reloads", `${reloads} for ${edits} edits`],
      ].map((cells, i) => [...cells, fine[i] ? "ok" : "FAILED"]),
    );
    console.log(`\np50 / p99 ms: ${percentiles(load.outcomes.filter(({ due }) => due >= beganAt))}`);
    return fine.every((each) => each);
  });
}

/** Each differs from the last, in a route and in a name; upstream and limit stay. */
function configured(nth: number, port: number): AnyConfigInput {
  const upstreams = [{ host: "127.0.0.1", port }];
  const limit = { name: "rate_limit", config: { limit_hour: LIMIT } };
  return {
    global: { name: `edit-${nth}` },
    services: [
      {
        name: "s",
        base_path: "/",
        upstreams,
        retries: {},
        routes: [{ path: "/{rest*}" }, { name: "n", path: `/nth-${nth}` }],
      },
      {
        name: "limited",
        base_path: "/limited",
        upstreams,
        plugins: [limit],
        routes: [{ path: "/{rest*}" }, { path: "/", name: "root" }],
      },
    ],
  };
}

async function webSocket(port: number) {
  const socket = net.connect(port, "127.0.0.1");
  let received = "";
  socket.setEncoding("latin1").on("data", (text: string) => (received += text));
  socket.on("error", () => {});
  socket.write(
    "GET /socket HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: " +
      "13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
  );
  if (!(await until(() => received.startsWith("HTTP/1.1 101 "), 5_000))) throw new Error(`no WebSocket: ${received}`);
  return {
    async echoes(text: string) {
      socket.write(text);
      return until(() => received.endsWith(text), 2_000);
    },
    close: () => void socket.destroy(),
  };
}
