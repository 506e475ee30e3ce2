import type { ServerResponse } from "node:http";
import { describe, expect, it } from "vitest";
import { manualClock } from "../support/clock.ts";
import { oneService, running } from "../support/gateway.ts";
import { ask, eventually } from "../support/raw_client.ts";
import { client, codeIn, get, restartableBackend, PROTOCOLS, recordedLog, speaking, type Protocol } from "./harness.ts";

const OPEN_MS = 4_500;
const circuit_breaker = { error_ratio: 0.5, min_requests: 4, window_ms: 10_000, open_ms: OPEN_MS };
/** Only the breaker keeps requests from the upstream: passive health checks are off. */
const parts = { circuit_breaker, health: { passive: { max_failures: 0 } } };

async function bench({ probes = 1, protocol = "http" as Protocol } = {}) {
  const clock = manualClock();
  const recorded = recordedLog();
  const backend = await restartableBackend(protocol);
  const config = oneService(backend.port, {
    ...speaking(protocol),
    ...parts,
    circuit_breaker: { ...circuit_breaker, probes },
  });
  const { port, gateway } = await running(config, { clock, log: recorded.log });
  const fails = (_request: unknown, response: ServerResponse) => void response.writeHead(500).end("failed");
  const works = backend.answer;
  const one = async () => {
    const { status, body } = await ask(port, { path: "/a/x" });
    return `${status} ${codeIn(body.toString()) ?? ""}`.trim();
  };
  const several = async (requests: number) => {
    const answers = [];
    for (let i = 0; i < requests; i++) answers.push(await one());
    return answers;
  };
  /** Fails requests until the breaker is open. */
  const open = async () => {
    backend.answer = fails;
    await several(circuit_breaker.min_requests);
    backend.requests = 0;
  };
  const circuit = () =>
    recorded.lines.map(({ message }) => String(message)).filter((message) => message.startsWith("circuit"));
  return { clock, backend, config, port, gateway, fails, works, one, several, open, circuit };
}

const OPENED = "circuit opened: requests are refused";
const CLOSED = "circuit closed: requests pass again";

describe("a circuit breaker", () => {
  it.each(PROTOCOLS)(
    "a circuit breaker opens over %s when the upstream is gone, and then refuses requests without connecting to it",
    async (protocol) => {
      const { backend, several, port, circuit } = await bench({ protocol });
      await backend.kill();
      expect(await several(5)).toEqual([...Array<string>(4).fill("502 upstream_connect_failed"), "503 circuit_open"]);
      await backend.start();
      expect(await several(20)).toEqual(Array<string>(20).fill("503 circuit_open"));
      expect(backend.requests).toBe(0);
      const { headers } = await ask(port, { path: "/a/x" });
      expect(headers["retry-after"]).toBe("5");
      expect(headers["content-type"]).toBe("application/problem+json");
      expect(circuit()).toEqual([OPENED]);
    },
  );

  it("a circuit breaker opens when failures reach error_ratio, neither below it nor before min_requests", async () => {
    const { backend, fails, works, several } = await bench();
    await several(3);
    backend.answer = fails;
    expect(await several(2)).toEqual(["500", "500"]);
    backend.answer = works;
    await several(1);
    backend.answer = fails;
    expect(await several(3)).toEqual(["500", "500", "503 circuit_open"]);
  });

  it("a circuit breaker states in Retry-After how long it stays open", async () => {
    const { clock, open, port } = await bench();
    await open();
    clock.advance(2_000);
    expect((await ask(port, { path: "/a/x" })).headers["retry-after"]).toBe("3");
    clock.advance(2_499);
    expect((await ask(port, { path: "/a/x" })).headers["retry-after"]).toBe("1");
  });

  it("a circuit breaker refuses an upload without reading it", async () => {
    const { open, port, backend } = await bench();
    await open();
    const { status } = await ask(port, { method: "POST", path: "/a/x", body: "x".repeat(1_000_000) });
    expect(status).toBe(503);
    expect(backend.requests).toBe(0);
  });

  it("a circuit breaker lets a probe through after open_ms, and closes when the probe succeeds", async () => {
    const { clock, backend, works, open, several, circuit } = await bench();
    await open();
    backend.answer = works;
    clock.advance(OPEN_MS - 1);
    expect(await several(1)).toEqual(["503 circuit_open"]);
    clock.advance(1);
    expect(await several(10)).toEqual(Array<string>(10).fill("200"));
    expect(circuit()).toEqual([OPENED, CLOSED]);
  });

  it("a circuit breaker opens again for open_ms when the probe fails", async () => {
    const { clock, open, several, backend, circuit } = await bench();
    await open();
    clock.advance(OPEN_MS);
    expect(await several(3)).toEqual(["500", "503 circuit_open", "503 circuit_open"]);
    clock.advance(OPEN_MS - 1);
    expect(await several(1)).toEqual(["503 circuit_open"]);
    expect(backend.requests).toBe(1);
    expect(circuit()).toEqual([OPENED, OPENED]);
  });

  it.each([1, 3])(
    "a circuit breaker lets at most %i probes through at a time, however many requests arrive at once",
    async (probes) => {
      const { clock, backend, open, one, circuit } = await bench({ probes });
      await open();
      clock.advance(OPEN_MS);
      const held: ServerResponse[] = [];
      backend.answer = (_request, response) => void held.push(response);
      const answers = Array.from({ length: 20 }, one);
      let refused = 0;
      for (const answer of answers) void answer.then((text) => text === "503 circuit_open" && refused++);
      await eventually(() => held.length === probes && refused === 20 - probes, "the refusals");
      for (const response of held) response.end("ok");
      expect((await Promise.all(answers)).filter((text) => text === "200")).toHaveLength(probes);
      expect(backend.requests).toBe(probes);
      expect(circuit()).toEqual([OPENED, CLOSED]);
    },
  );

  it("a circuit breaker gives the slot of a probe whose client has disconnected to the next request", async () => {
    const { clock, backend, works, open, one, port, gateway } = await bench();
    await open();
    clock.advance(OPEN_MS);
    let held = 0;
    backend.answer = () => void held++;
    const connection = await client(port);
    connection.send(get());
    await eventually(() => held === 1, "a request at the upstream");
    connection.socket.destroy();
    await eventually(() => gateway.inFlight === 0, "no request being in flight");
    backend.answer = works;
    expect(await one()).toBe("200");
  });

  it(
    "a circuit breaker keeps its state over a reload, " + "and is removed by a reload that no longer configures it",
    async () => {
      const { clock, backend, works, config, gateway, open, several } = await bench();
      await open();
      backend.answer = works;
      const service = config.services[0]!;
      await gateway.reload({
        ...config,
        services: [{ ...service, base_path: "/a", circuit_breaker: { ...circuit_breaker, open_ms: 2 * OPEN_MS } }],
      });
      clock.advance(OPEN_MS);
      expect(await several(2)).toEqual(["503 circuit_open", "503 circuit_open"]);
      const { circuit_breaker: _none, ...without } = service;
      await gateway.reload({ ...config, services: [without] });
      expect(await several(2)).toEqual(["200", "200"]);
    },
  );

  it(
    "a circuit breaker judges a request by its final outcome: " + "one that a retry has saved counts as a success",
    async () => {
      const good = await restartableBackend();
      const bad = await restartableBackend();
      bad.answer = (request) => void request.socket.destroy();
      const { port } = await running(oneService([bad.port, good.port], { ...parts, retries: {} }));
      for (let i = 0; i < 12; i++) expect((await ask(port, { path: "/a/x" })).status).toBe(200);
      expect(bad.requests).toBe(6);
    },
  );

  it("a circuit breaker affects its own service only", async () => {
    const { backend, config, gateway, open, one, port } = await bench();
    const other = await restartableBackend();
    const service = config.services[0]!;
    await gateway.reload({
      ...config,
      services: [
        service,
        { ...service, name: "other", base_path: "/b", upstreams: [{ host: "127.0.0.1", port: other.port }] },
      ],
    });
    await open();
    expect(await one()).toBe("503 circuit_open");
    expect((await ask(port, { path: "/b/x" })).status).toBe(200);
    expect(backend.requests).toBe(0);
  });
});
