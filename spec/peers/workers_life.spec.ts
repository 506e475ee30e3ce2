import { writeFileSync } from "node:fs";
import { join } from "node:path";
import tls, { type TLSSocket } from "node:tls";
import { describe, expect, it } from "vitest";
import { load } from "../journeys/load.ts";
import { CA, SERVER } from "../support/certs.ts";
import { backend, oneService } from "../support/gateway.ts";
import { keptClient, over } from "../support/kept_client.ts";
import { emptyFolder, logLines, program } from "../support/process.ts";
import { eventually } from "../support/raw_client.ts";
import { nodeOf, RELEASES } from "./nodes.ts";
import { clientOn, probeModule, withWorkers, workerOf, workersOn } from "./workers.ts";

describe.each(RELEASES)("two workers on Node %i", (release) => {
  it.each(["0", "1"])(
    "that are told to end under load with PRE_STOP_DELAY_S=%s fail no request of clients that move to another gateway",
    async (PRE_STOP_DELAY_S) => {
      const origin = await backend((request, response) => void response.end(request.url));
      const config = oneService(origin.port);
      const [first, second] = [
        await withWorkers(config, { release, environment: { PRE_STOP_DELAY_S } }),
        await withWorkers(config, { release }),
      ];
      const under = load({ ports: [first.port, second.port], clients: 16, pauseMs: (client) => client % 3 });
      await under.more(500);
      first.child.kill("SIGTERM");
      expect(await first.ended).toMatchObject({ code: 0, signal: null });
      await under.more(200);
      await under.stop();
      expect(under.failures).toEqual([]);
      expect(first.stderr()).not.toContain("worker has ended");
      expect(logLines(first.stderr()).at(-1)).toMatchObject({ message: "stopped" });
    },
  );

  it(
    "leave an upstream alone that the administrator has ejected, " +
      "also a worker that starts later, over a reload and a restart",
    async () => {
      const [a, b] = [
        await backend((_request, response) => void response.end("a")),
        await backend((_request, response) => void response.end("b")),
      ];
      const upstreams = [a, b].map(({ port }, i) => ({ id: "ab"[i]!, host: "127.0.0.1", port }));
      const config = oneService([], { upstreams, plugins: [{ name: "probe" }] }, { plugin_modules: [probeModule()] });
      const environment = { ADMIN_WRITE: "true", STATE_DIR: emptyFolder() };
      const started = () => withWorkers(config, { release, environment });
      let running = await started();
      const asked = async () => {
        const found: string[] = [];
        for (const thread of await workersOn(running.port, 2)) {
          const one = await clientOn(running.port, (worker) => worker === thread);
          for (let i = 0; i < 2; i++) found.push((await one.ask("/a/x")).body);
        }
        return found.sort().join("");
      };
      const set = async (state: string) => {
        const headers = { cookie: await running.session(), "content-type": "application/json" };
        const answer = await fetch(`${running.adminUrl}/gateway/upstreams/s/a`, {
          method: "POST",
          headers,
          body: JSON.stringify({ state }),
        });
        return ((await answer.json()) as { readonly admin_state: string | null }).admin_state;
      };
      expect(await asked()).toBe("aabb");
      expect(await set("eject")).toBe("eject");
      expect(await asked()).toBe("bbbb");
      await expect((await keptClient(running.port)).ask("/a/x?exit")).rejects.toThrow();
      await running.says("a worker serves again");
      expect(await asked()).toBe("bbbb");
      expect([await set("use"), await asked()]).toEqual([null, "aabb"]);
      expect([await set("drain"), await asked()]).toEqual(["drain", "bbbb"]);
      expect(await running.admin("/gateway/reload", "POST")).toContain('"changed":false');
      expect(await asked()).toBe("bbbb");
      running.child.kill("SIGKILL");
      await running.ended;
      running = await started();
      expect(await asked()).toBe("bbbb");
    },
  );

  it("ask no client to leave while one of them, which is busy, still listens", async () => {
    const { port } = await backend();
    const running = await withWorkers(
      oneService(port, { plugins: [{ name: "probe" }] }, { plugin_modules: [probeModule()] }),
      { release },
    );
    const [other, one] = await workersOn(running.port, 2);
    const [busy, free] = [
      await clientOn(running.port, (worker) => worker === other),
      await clientOn(running.port, (worker) => worker === one),
    ];
    const late = busy.ask("/a/x?busy");
    running.child.kill("SIGTERM");
    await running.says("SIGTERM: draining");
    while ((await free.ask("/a/x")).headers.connection !== "close");
    await expect(keptClient(running.port)).rejects.toThrow("ECONNREFUSED");
    expect((await late).status).toBe(200);
    busy.close();
    expect(await running.ended).toMatchObject({ code: 0, signal: null });
  });

  it("leave their port to the next program as soon as they drain", async () => {
    const held: (() => void)[] = [];
    const origin = await backend((_request, response) => void held.push(() => response.end("late")));
    const first = await withWorkers(oneService(origin.port), { release });
    const late = fetch(`http://127.0.0.1:${first.port}/a/x`);
    await eventually(() => held.length === 1, "a request in flight");
    first.child.kill("SIGTERM");
    await first.says("SIGTERM: draining");
    while (
      await keptClient(first.port).then(
        (client) => (client.close(), true),
        () => false,
      )
    );
    const second = program(
      ["--config", first.file, "--workers", "2", "--listen-host", "127.0.0.1", "--http-port", String(first.port)],
      { node: nodeOf(release) },
    );
    await second.says(/edge-gateway [^"]+ started/);
    expect(first.child.exitCode).toBe(null);
    held[0]!();
    expect(await (await late).text()).toBe("late");
  });

  it("write whole lines to one access log on a pipe: one for each request, however long", async () => {
    const { port } = await backend();
    const running = await withWorkers(
      oneService(port, { plugins: [{ name: "probe" }] }, { plugin_modules: [probeModule()] }),
      { release },
    );
    const long = "x".repeat(7_000);
    const asked = Array.from({ length: 20 }, async (_, nth) => {
      const client = await keptClient(running.port);
      const answers = await Promise.all(Array.from({ length: 20 }, (_, i) => client.ask(`/a/${nth}-${i}/${long}`)));
      client.close();
      return answers;
    });
    const answers = (await Promise.all(asked)).flat();
    expect(new Set(answers.map(workerOf)).size).toBe(2);
    running.child.kill("SIGTERM");
    const { stdout, code } = await running.ended;
    expect(code).toBe(0);
    const paths = logLines(stdout).map(({ path }) => String(path).slice(0, -long.length));
    expect(paths.sort()).toEqual(Array.from({ length: 400 }, (_, i) => `/a/${Math.floor(i / 20)}-${i % 20}/`).sort());
  });

  it("resume each other's TLS sessions, on HTTPS ports alone", async () => {
    const { port } = await backend();
    const folder = emptyFolder();
    const [cert, key] = [join(folder, "server.pem"), join(folder, "server.key")];
    writeFileSync(cert, SERVER.cert);
    writeFileSync(key, SERVER.key);
    const config = oneService(port, { plugins: [{ name: "probe" }] }, { plugin_modules: [probeModule()] });
    const running = await withWorkers(config, {
      release,
      environment: { SERVER_CERT_PATH: cert, SERVER_KEY_PATH: key, HTTP_PORT: "off" },
    });
    expect(running.started.http).toBe("off: HTTP_PORT is off");
    const https = Number(new URL((running.started.https as string[])[0]!).port);
    let session: Buffer | undefined;
    const worker = async (resumed: boolean) => {
      const socket = tls.connect({
        port: https,
        host: "127.0.0.1",
        ca: CA.cert,
        servername: "localhost",
        ...(session && { session }),
      });
      socket.on("session", (given: Buffer) => (session = given));
      await new Promise<void>((resolve, reject) =>
        (socket as TLSSocket).once("secureConnect", resolve).once("error", reject),
      );
      expect(socket.isSessionReused()).toBe(resumed);
      const client = over(socket);
      const answered = workerOf(await client.ask("/a/x"));
      client.close();
      return answered;
    };
    const seen = new Set([await worker(false)]);
    for (let tries = 0; seen.size < 2 && tries < 200; tries++) seen.add(await worker(true));
    expect(seen.size).toBe(2);
  });
});
