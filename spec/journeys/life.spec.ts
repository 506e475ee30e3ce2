import { describe, expect, it } from "vitest";
import { backend, oneService } from "../support/gateway.ts";
import { logLines, runningProgram } from "../support/process.ts";
import { ask, connect, eventually, refused } from "../support/raw_client.ts";
import { load } from "./load.ts";

/** A running program in front of an upstream that answers when `finish` is called. */
async function slow(words: readonly string[] = [], environment: Record<string, string> = {}) {
  const finish: (() => void)[] = [];
  const origin = await backend((request, response) => {
    if (request.url === "/quick") return void response.end("quick");
    response.write("begun ");
    finish.push(() => void response.end("and finished"));
  });
  const running = await runningProgram(oneService(origin.port), words, environment);
  return { ...running, origin, finish: () => finish.forEach((each) => each()) };
}

describe.each(["SIGTERM", "SIGINT"] as const)("%s", (signal) => {
  it("finishes the request in flight, refuses new connections meanwhile, and exits with status 0", async () => {
    const { child, port, origin, finish, says, ended, stderr } = await slow();
    const answer = ask(port, { path: "/a/slow" });
    await eventually(() => origin.seen.length === 1, "a request at the upstream");
    child.kill(signal);
    await says(`${signal}: draining`);
    // A connection that the system accepted before the listener closed is reset instead.
    expect((await refused(port)).code).toMatch(/ECONNREFUSED|ECONNRESET/);
    finish();
    expect((await answer).body.toString()).toBe("begun and finished");
    expect(await ended).toMatchObject({ code: 0, signal: null });
    expect(logLines(stderr()).slice(-2)).toMatchObject([
      { message: `${signal}: draining`, in_flight: 1, grace_s: 30 },
      { message: "stopped" },
    ]);
  });
});

describe("SIGTERM", () => {
  it("exits at once when nothing is connected", async () => {
    const { child, ended, stderr } = await slow();
    child.kill("SIGTERM");
    expect(await ended).toMatchObject({ code: 0, signal: null });
    const [draining, stopped] = logLines(stderr())
      .slice(-2)
      .map(({ time }) => Date.parse(String(time)));
    expect(stopped! - draining!).toBeLessThan(900); // an idle connection is otherwise kept for a second
  });

  it(
    "answers the last request on an idle keep-alive connection during the drain, " + "and then closes the connection",
    async () => {
      const { child, port, says, ended } = await slow();
      const client = await connect(port);
      const answered = () => client.text().split("\r\n\r\nquick").length - 1;
      const askOnce = async () => {
        const before = answered();
        client.send("GET /a/quick HTTP/1.1\r\nHost: h\r\n\r\n");
        await eventually(() => answered() > before, "further answers");
      };
      await askOnce();
      child.kill("SIGTERM");
      await says("SIGTERM: draining");
      // Until the port is closed, replies keep the connection open; each one does so for a second more.
      while (!client.text().includes("\r\nConnection: close\r\n")) await askOnce();
      expect(await client.closed()).toMatch(/HTTP\/1\.1 200 OK\r\n(.+\r\n)*Connection: close\r\n(.+\r\n)*\r\nquick$/);
      expect(await ended).toMatchObject({ code: 0, signal: null });
    },
  );

  it("closes idle keep-alive connections and exits soon when nothing is in flight", async () => {
    const { child, port, ended } = await slow();
    const client = await connect(port);
    client.send("GET /a/quick HTTP/1.1\r\nHost: h\r\n\r\n");
    await client.until("quick");
    child.kill("SIGTERM");
    await client.closed();
    expect(await ended).toMatchObject({ code: 0, signal: null });
  });

  it(
    "cuts off remaining requests when SHUTDOWN_GRACE_S has passed, reports that, " + "and still exits with status 0",
    async () => {
      const { child, port, ended, stderr } = await slow([], { SHUTDOWN_GRACE_S: "0" });
      const client = await connect(port);
      client.send("GET /a/slow HTTP/1.1\r\nHost: h\r\n\r\n");
      await client.until("begun");
      child.kill("SIGTERM");
      expect(await client.closed()).not.toContain("\r\n0\r\n");
      expect(await ended).toMatchObject({ code: 0, signal: null });
      expect(logLines(stderr()).slice(-2)).toMatchObject([
        { level: "warn", message: "the grace period is over: requests still in flight were cut off" },
        { message: "stopped" },
      ]);
    },
  );

  it("writes access log lines for requests that are cut off", async () => {
    const { child, port, ended } = await slow([], { SHUTDOWN_GRACE_S: "0" });
    const client = await connect(port);
    client.send("GET /a/slow HTTP/1.1\r\nHost: h\r\n\r\n");
    await client.until("begun");
    child.kill("SIGTERM");
    expect(logLines((await ended).stdout)).toMatchObject([{ path: "/a/slow", status: 200, code: "client_closed" }]);
  });

  it("exits at once with status 1 on a second signal", async () => {
    const { child, port, origin, says, ended } = await slow();
    const answer = expect(ask(port, { path: "/a/slow" })).rejects.toThrow();
    await eventually(() => origin.seen.length === 1, "a request at the upstream");
    child.kill("SIGTERM");
    await says("SIGTERM: draining");
    child.kill("SIGINT");
    await answer;
    const { code, stderr } = await ended;
    expect(code).toBe(1);
    expect(logLines(stderr).at(-1)).toMatchObject({ level: "warn", message: "SIGINT again: ending at once" });
  });

  it("answers /readyz with 503 and /healthz with 200 during the drain", async () => {
    const { child, port, origin, started, finish, says, ended } = await slow([], {
      ADMIN_USER: "a",
      ADMIN_PASSWORD: "b",
    });
    const admin = Number(new URL(started.admin as string).port);
    expect((await ask(admin, { path: "/readyz" })).status).toBe(200);
    const answer = ask(port, { path: "/a/slow" });
    await eventually(() => origin.seen.length === 1, "a request at the upstream");
    child.kill("SIGTERM");
    await says("SIGTERM: draining");
    expect((await ask(admin, { path: "/readyz" })).status).toBe(503);
    expect((await ask(admin, { path: "/healthz" })).status).toBe(200);
    finish();
    expect((await answer).status).toBe(200);
    expect((await ended).code).toBe(0);
  });
});

describe.each(["0", "1"])("SIGTERM under load with PRE_STOP_DELAY_S=%s", (PRE_STOP_DELAY_S) => {
  it("fails no request of clients that move to another gateway when they cannot connect to this one", async () => {
    const origin = await backend((request, response) => response.end(request.url));
    const [first, second] = await Promise.all([
      runningProgram(oneService(origin.port), [], { PRE_STOP_DELAY_S }),
      runningProgram(oneService(origin.port)),
    ]);
    // Half of the clients pause between requests.
    const clients = load({ ports: [first.port, second.port], clients: 12, pauseMs: (i) => (i % 2 === 0 ? 0 : 3 * i) });
    await clients.more(600);
    first.child.kill("SIGTERM");
    expect(await first.ended).toMatchObject({ code: 0, signal: null });
    await clients.more(200);
    await clients.stop();
    expect(clients.failures).toEqual([]);
    expect(clients.by.get(first.port)).toBeGreaterThanOrEqual(600);
    expect(clients.by.get(second.port)).toBeGreaterThanOrEqual(100);
    expect(logLines(first.stderr()).at(-1)).toMatchObject({ message: "stopped" });
  });
});

describe("PRE_STOP_DELAY_S", () => {
  const environment = { ADMIN_USER: "a", ADMIN_PASSWORD: "b" };

  it(
    "keeps a gateway serving that is not ready, each connection for one more reply, " +
      "and a second signal exits with status 1",
    async () => {
      const { child, port, started, says, ended, stderr } = await slow([], {
        ...environment,
        PRE_STOP_DELAY_S: "3600",
      });
      const admin = Number(new URL(started.admin as string).port);
      const kept = await connect(port);
      kept.send("GET /a/quick HTTP/1.1\r\nHost: h\r\n\r\n");
      await kept.until("quick");
      child.kill("SIGTERM");
      await says("SIGTERM: not ready any more, still serving");
      expect((await ask(admin, { path: "/readyz" })).status).toBe(503);
      expect((await ask(admin, { path: "/healthz" })).status).toBe(200);
      for (const each of [kept, await connect(port)]) {
        each.send("GET /a/quick HTTP/1.1\r\nHost: h\r\n\r\n");
        expect(await each.closed()).toMatch(/\r\nConnection: close\r\n[^]*quick$/);
      }
      child.kill("SIGTERM");
      expect(await ended).toMatchObject({ code: 1, signal: null });
      expect(logLines(stderr()).slice(-2)).toMatchObject([
        { message: "SIGTERM: not ready any more, still serving", delay_s: 3600 },
        { level: "warn", message: "SIGTERM again: ending at once" },
      ]);
    },
  );

  it("the delay of PRE_STOP_DELAY_S is followed by the drain and exit status 0", async () => {
    const { child, port, origin, finish, says, ended, stderr } = await slow([], { PRE_STOP_DELAY_S: "1" });
    child.kill("SIGTERM");
    await says("SIGTERM: not ready any more, still serving");
    const answer = ask(port, { path: "/a/slow" });
    await eventually(() => origin.seen.length === 1, "a request at the upstream");
    await says("SIGTERM: draining");
    await refused(port);
    finish();
    expect((await answer).body.toString()).toBe("begun and finished");
    expect((await ended).code).toBe(0);
    const times = logLines(stderr())
      .slice(-3)
      .map(({ time }) => Date.parse(String(time)));
    expect(times[1]! - times[0]!).toBeGreaterThanOrEqual(990);
  });
});
