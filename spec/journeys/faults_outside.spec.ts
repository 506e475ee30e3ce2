import { createHash } from "node:crypto";
import { describe, expect, it } from "vitest";
import { definePlugin, schema } from "../../lib/index.ts";
import { codec } from "../support/codec.ts";
import { expectEntryFaults } from "../support/entry_faults.ts";
import { backend, oneService, running } from "../support/gateway.ts";
import { fileWith, logLines, runningProgram } from "../support/process.ts";
import { ask, eventually } from "../support/raw_client.ts";

/** A configuration whose plugin runs this code in `create`. */
function withModule(port: number, code: string): object {
  const module = `import { EventEmitter } from "node:events";
    const fail = (what) => { throw new Error("lost in " + what); };
    export default (kit) => kit.definePlugin({ name: "own", schema: kit.schema.object({}), create(_config, tools) {
      ${code}
      return (next) => (exchange) => next(exchange);
    } });`;
  const plugin_modules = [
    { path: fileWith(module, "own.mjs"), sha256: createHash("sha256").update(module).digest("hex") },
  ];
  return oneService(port, { plugins: [{ name: "own" }] }, { plugin_modules });
}

const OUTSIDE = `
  setTimeout(() => fail("a timer"), 1);
  tools.clock.after(1, () => fail("a timer of the clock"));
  queueMicrotask(() => fail("a microtask"));
  setImmediate(() => fail("a turn"));
  process.nextTick(() => fail("a tick"));
  void (async () => fail("a promise"))();
  const emitter = new EventEmitter().on("event", () => fail("a listener"));
  setTimeout(() => emitter.emit("event"), 1);`;
const PLACES = ["a listener", "a microtask", "a promise", "a tick", "a timer", "a timer of the clock", "a turn"];

describe("a fault outside of a request", () => {
  it(
    "of a plugin module, in a timer, microtask, promise or listener, is logged and counted, " +
      "and the gateway serves on",
    async () => {
      const { port } = await backend();
      const {
        port: gateway,
        started,
        stderr,
        says,
        child,
        ended,
      } = await runningProgram(withModule(port, OUTSIDE), [], { PROBE_PORT: "0", PROBE_HOST: "127.0.0.1" });
      const faults = () =>
        logLines(stderr()).filter(({ message }) => message === "a plugin module failed outside of a request");
      await eventually(() => faults().length >= PLACES.length, "all faults are logged");
      expect(
        faults()
          .map(({ error }) => /lost in ([a-z ]+)/.exec(String(error))![1])
          .sort(),
      ).toEqual(PLACES);
      expect(faults().every(({ module }) => /^file:.*\/own\.mjs$/.test(String(module)))).toBe(true);
      expect((await ask(gateway, { path: "/a/x" })).status).toBe(200);
      const metrics = await (await fetch(`${String(started.probes)}/metrics`)).text();
      expect(metrics).toContain(`edge_gateway_plugin_faults_total{plugin="own.mjs"} ${PLACES.length}\n`);
      child.kill("SIGTERM");
      await says("stopped");
      expect((await ended).code).toBe(0);
    },
  );

  it("that is no plugin module's by its stack ends the gateway with status 1 and is logged", async () => {
    const { port } = await backend();
    const { ended } = await runningProgram(withModule(port, 'setTimeout(() => { throw "without a stack"; }, 300);'));
    const { code, stderr } = await ended;
    expect(code).toBe(1);
    expect(logLines(stderr).at(-1)).toMatchObject({
      message: "an uncaught error ends the program",
      error: "without a stack",
    });
  });

  it("in a listener that gets bytes of a client ends its request only", async () => {
    const faults = expectEntryFaults();
    const listens = definePlugin({
      name: "listens",
      schema: schema.object({}),
      create: () => (next) => (exchange) => {
        exchange.body?.on("data", () => {
          throw new Error("lost in data");
        });
        return next(exchange);
      },
    });
    const { port: upstream } = await backend();
    const { port } = await running(oneService(upstream, { plugins: [{ name: "listens" }] }), { plugins: [listens] });
    const body = Buffer.alloc(300_000);
    const outcome = ask(port, { method: "POST", path: "/a/x", body }).then(
      ({ status }) => status,
      (error: NodeJS.ErrnoException) => error.code,
    );
    // Node's server cannot end a body without its connection.
    expect(codec === "wire" ? [500] : ["ECONNRESET", "EPIPE"]).toContain(await outcome);
    expect(faults.map(({ error }) => (error as Error).message)).toEqual(["lost in data"]);
    expect((await ask(port, { path: "/a/x" })).status).toBe(200);
  });
});
