import type { ServerResponse } from "node:http";
import { describe, expect, it } from "vitest";
import type { AnyConfigInput } from "../../lib/config/model.ts";
import { oneService, running } from "../support/gateway.ts";
import { h2Session } from "../support/h2_client.ts";
import { ask, eventually } from "../support/raw_client.ts";
import { client, closedLoop, codeIn, get, restartableBackend, statusesIn } from "./harness.ts";

const MOST = 5;

/** A gateway with as many unanswered requests as it accepts. */
async function full(global: NonNullable<AnyConfigInput["global"]> = {}, parts: Parameters<typeof oneService>[1] = {}) {
  const backend = await restartableBackend();
  const held: ServerResponse[] = [];
  const works = backend.answer;
  backend.answer = (_request, response) => void held.push(response);
  const config = oneService(backend.port, parts, {
    ...global,
    limits: { max_requests_in_flight: MOST, max_client_share: 1 },
  });
  const { port, gateway } = await running(config);
  const accepted = Array.from({ length: MOST }, () => ask(port, { path: "/a/x" }));
  await eventually(() => held.length === MOST, "the accepted requests");
  /** Answers the waiting requests, and every later one. */
  const release = () => {
    backend.answer = works;
    for (const response of held.splice(0)) response.end("late");
  };
  return { backend, config, port, gateway, accepted, release };
}

describe("a gateway at max_requests_in_flight", () => {
  it(
    "a gateway at max_requests_in_flight refuses further requests at once without asking the upstream, " +
      "and finishes every request it has accepted",
    async () => {
      const { backend, port, gateway, accepted, release } = await full();
      const load = closedLoop(port, 20);
      await load.more(500);
      expect(gateway.inFlight).toBeLessThanOrEqual(MOST + 20);
      await load.stop();
      expect(load.outcomes).toHaveLength(load.requests);
      expect(load.outcomes.every((outcome) => outcome.startsWith("503 ") && codeIn(outcome) === "overloaded")).toBe(
        true,
      );
      expect(backend.requests).toBe(MOST);
      release();
      const answers = await Promise.all(accepted);
      expect(answers.map(({ status, body }) => `${status} ${body}`)).toEqual(Array<string>(MOST).fill("200 late"));
      expect((await ask(port, { path: "/a/x" })).status).toBe(200);
      expect(gateway.inFlight).toBe(0);
    },
  );

  it(
    "a gateway at max_requests_in_flight keeps the connection of a refused request open: " +
      "the next request on it may be accepted",
    async () => {
      const { port, release, accepted } = await full();
      const connection = await client(port);
      connection.send(get() + get());
      await connection.until(/overloaded[^]*overloaded/);
      release();
      await Promise.all(accepted);
      connection.send(get("/a/x", "Connection: close"));
      expect(statusesIn(await connection.closed())).toEqual([503, 503, 200]);
    },
  );

  it("a gateway at max_requests_in_flight refuses an upload without reading it to its end", async () => {
    const { backend, port, accepted, release } = await full();
    const connection = await client(port);
    connection.send("POST /a/x HTTP/1.1\r\nHost: h\r\nContent-Length: 100000000\r\n\r\nbeginning");
    await connection.until("overloaded");
    expect(backend.requests).toBe(MOST);
    release();
    await Promise.all(accepted);
  });

  it(
    "a gateway at max_requests_in_flight refuses HTTP/2 streams one by one, " +
      "and accepts new ones when accepted ones end",
    async () => {
      const { port, accepted, release } = await full({ h2c: true });
      const session = h2Session(port);
      const status = () =>
        new Promise<number>((resolve, reject) => {
          const stream = session.request({ ":path": "/a/x" });
          stream.on("error", reject);
          stream.on("response", (headers) => resolve(headers[":status"]!));
          stream.resume();
        });
      expect(await Promise.all(Array.from({ length: 50 }, status))).toEqual(Array<number>(50).fill(503));
      release();
      await Promise.all(accepted);
      expect(await status()).toBe(200);
    },
  );

  it("a gateway at max_requests_in_flight counts a retried request once", async () => {
    const { backend, config, port, gateway, accepted, release } = await full();
    const dead = await restartableBackend();
    await dead.kill();
    release();
    await Promise.all(accepted);
    const service = config.services[0]!;
    const upstreams = [dead, backend].map((each) => ({ host: "127.0.0.1", port: each.port }));
    await gateway.reload({ ...config, services: [{ ...service, upstreams, retries: {} }] });
    const load = closedLoop(port, MOST);
    await load.more(100);
    await load.stop();
    expect(load.lost).toEqual([]);
  });

  it(
    "a gateway at max_requests_in_flight keeps the limit over a reload, " +
      "and accepts more when the reload raises it",
    async () => {
      const { backend, config, port, gateway, accepted, release } = await full();
      await gateway.reload(config);
      expect((await ask(port, { path: "/a/x" })).status).toBe(503);
      await gateway.reload({
        ...config,
        global: { ...config.global, limits: { max_requests_in_flight: MOST + 1, max_client_share: 1 } },
      });
      const one = ask(port, { path: "/a/x" });
      await eventually(() => backend.requests === MOST + 1, "the accepted requests at the upstream");
      expect((await ask(port, { path: "/a/x" })).status).toBe(503);
      release();
      expect((await one).status).toBe(200);
      await Promise.all(accepted);
    },
  );
});
