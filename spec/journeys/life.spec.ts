import { describe, expect, it } from "vitest";
import { backend, oneService } from "../support/gateway.ts";
import { logLines, runningProgram } from "../support/process.ts";
import { ask, connect, eventually, refused } from "../support/raw_client.ts";

/** A running program in front of an upstream that answers when told to. */
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
  it("lets a request in flight finish, refuses new connections meanwhile, and ends with exit 0", async () => {
    const { child, port, origin, finish, says, ended, stderr } = await slow();
    const answer = ask(port, { path: "/a/slow" });
    await eventually(() => origin.seen.length === 1);
    child.kill(signal);
    await says(`${signal}: draining`);
    // A connection that the system had taken before the listener closed is reset instead.
    expect((await refused(port)).code).toMatch(/ECONNREFUSED|ECONNRESET/);
    finish();
    expect((await answer).body.toString()).toBe("begun and finished");
    expect(await ended).toMatchObject({ code: 0, signal: null });
    expect(logLines(stderr()).slice(-2)).toMatchObject([{ message: `${signal}: draining`, in_flight: 1, grace_s: 30 }, { message: "stopped" }]);
  });
});

describe("SIGTERM", () => {
  it("ends at once when nothing is in flight, idle keep-alive connections closed", async () => {
    const { child, port, ended } = await slow();
    const client = await connect(port);
    client.send("GET /a/quick HTTP/1.1\r\nHost: h\r\n\r\n");
    await client.until("quick");
    child.kill("SIGTERM");
    await client.closed();
    expect(await ended).toMatchObject({ code: 0, signal: null });
  });

  it("cuts off what is left when SHUTDOWN_GRACE_S is over, says so, and still ends with exit 0", async () => {
    const { child, port, ended, stderr } = await slow([], { SHUTDOWN_GRACE_S: "0" });
    const client = await connect(port);
    client.send("GET /a/slow HTTP/1.1\r\nHost: h\r\n\r\n");
    await client.until("begun");
    child.kill("SIGTERM");
    expect(await client.closed()).not.toContain("\r\n0\r\n");
    expect(await ended).toMatchObject({ code: 0, signal: null });
    expect(logLines(stderr()).slice(-2)).toMatchObject([
      { level: "warn", message: "the grace ran out: what was still in flight has been cut off" },
      { message: "stopped" },
    ]);
  });

  it("writes the access log of what was cut off", async () => {
    const { child, port, ended } = await slow([], { SHUTDOWN_GRACE_S: "0" });
    const client = await connect(port);
    client.send("GET /a/slow HTTP/1.1\r\nHost: h\r\n\r\n");
    await client.until("begun");
    child.kill("SIGTERM");
    expect(logLines((await ended).stdout)).toMatchObject([{ path: "/a/slow", status: 200, code: "client_closed" }]);
  });

  it("a second signal ends the program at once with exit 1", async () => {
    const { child, port, origin, says, ended } = await slow();
    const answer = expect(ask(port, { path: "/a/slow" })).rejects.toThrow();
    await eventually(() => origin.seen.length === 1);
    child.kill("SIGTERM");
    await says("SIGTERM: draining");
    child.kill("SIGINT");
    await answer;
    const { code, stderr } = await ended;
    expect(code).toBe(1);
    expect(logLines(stderr).at(-1)).toMatchObject({ level: "warn", message: "SIGINT again: ending at once" });
  });

  it("answers /readyz with 503 while it drains, and /healthz with 200", async () => {
    const { child, port, origin, started, finish, says, ended } = await slow([], { ADMIN_USER: "a", ADMIN_PASSWORD: "b" });
    const admin = Number(new URL(started.admin as string).port);
    expect((await ask(admin, { path: "/readyz" })).status).toBe(200);
    const answer = ask(port, { path: "/a/slow" });
    await eventually(() => origin.seen.length === 1);
    child.kill("SIGTERM");
    await says("SIGTERM: draining");
    expect((await ask(admin, { path: "/readyz" })).status).toBe(503);
    expect((await ask(admin, { path: "/healthz" })).status).toBe(200);
    finish();
    expect((await answer).status).toBe(200);
    expect((await ended).code).toBe(0);
  });
});
