/** Upstreams that an administrator takes out of traffic: drain, eject, use. */
import { writeFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import type { AnyConfigInput } from "../../lib/config/model.ts";
import { Gateway } from "../../lib/embed/gateway.ts";
import { takenOutOf } from "../../lib/gateway/taken_out.ts";
import { takeOut } from "../../lib/upstream/taken_out.ts";
import { CA } from "../support/certs.ts";
import { OTHER_CA } from "../support/more_certs.ts";
import { fileWith } from "../support/process.ts";
import { together } from "../support/following.ts";
import { oneService, running } from "../support/gateway.ts";
import { ask, eventually, type Ask } from "../support/raw_client.ts";
import { backend, byteBackend, client, gate, get, recordedLog, restartableBackend } from "./harness.ts";

type Parts = Partial<AnyConfigInput["services"][number]>;
type State = "drain" | "eject" | "use";

function set(gateway: Gateway, id: string, state: State): void {
  const { runtime } = Gateway.internalsOf(gateway);
  takeOut(runtime.upstreamsOf("s")!.upstreamSet, { id, state }, runtime.healthTools.changes);
}

/** Backends "a", "b" … and a gateway in front of them. */
async function several(n: number, parts: Parts = {}, protocol: "http" | "https" = "http") {
  const backends = await Promise.all(Array.from({ length: n }, () => restartableBackend(protocol)));
  const ids = ["a", "b", "c"].slice(0, n);
  backends.forEach((each, i) => (each.answer = (_request, response) => void response.end(ids[i])));
  const config = (more: Parts = {}) =>
    oneService([], {
      upstreams: backends.map(({ port }, i) => ({ id: ids[i]!, host: "127.0.0.1", port })),
      ...parts,
      ...more,
    });
  const started = await running(config());
  /** Who answers so many requests; a status other than 200 instead. */
  const answers = async (times: number, more: Ask = {}) => {
    const found: string[] = [];
    for (let i = 0; i < times; i++) {
      const { status, body } = await ask(started.port, { path: "/a/x", ...more });
      found.push(status === 200 ? body.toString() : String(status));
    }
    return found.join(" ");
  };
  return {
    backends,
    config,
    answers,
    set: (id: string, state: State) => set(started.gateway as Gateway, id, state),
    ...started,
  };
}

describe("an upstream that an administrator has taken out", () => {
  it.each(["drain", "eject"] as const)("gets no request (%s), until it is used again", async (state) => {
    const { answers, set } = await several(3);
    expect(await answers(3)).toBe("a b c");
    set("b", state);
    expect((await answers(6)).split(" ").sort().join("")).toBe("aaaccc");
    set("b", "use");
    expect((await answers(6)).split(" ").sort().join("")).toBe("aabbcc");
  });

  it.each(["drain", "eject"] as const)(
    "as the only one of its service (%s) leaves its requests with 503",
    async (state) => {
      for (const parts of [
        {},
        { health: { enabled: true } },
        { retries: { attempts: 1 } },
        { circuit_breaker: {} },
      ] satisfies Parts[]) {
        const { answers, set, port } = await several(1, parts);
        expect(await answers(1)).toBe("a");
        set("a", state);
        expect(await answers(30)).toBe(Array.from({ length: 30 }, () => "503").join(" "));
        expect(JSON.parse(String((await ask(port, { path: "/a/x" })).body))).toMatchObject({
          code: "upstream_unavailable",
        });
        set("a", "use");
        expect(await answers(2)).toBe("a a");
      }
    },
  );

  it("as the last of several leaves them with 503, whatever the others' reason", async () => {
    const { answers, set } = await several(3);
    for (const [id, state] of [
      ["a", "drain"],
      ["b", "eject"],
      ["c", "eject"],
    ] as const)
      set(id, state);
    expect(await answers(2)).toBe("503 503");
    set("c", "drain");
    expect(await answers(1)).toBe("503");
    set("b", "use");
    expect(await answers(2)).toBe("b b");
  });

  it("finishes the requests in flight", async () => {
    const { set, port, backends, answers } = await several(2);
    const open = gate();
    let isThere = false;
    backends[0]!.answer = async (_request, response) => {
      isThere = true;
      response.write("be");
      await open.opened;
      response.end("gun");
    };
    const pending = ask(port, { path: "/a/x" });
    await eventually(() => isThere, "the request");
    set("a", "eject");
    expect(await answers(2)).toBe("b b");
    open.open();
    expect((await pending).body.toString()).toBe("begun");
  });

  it("gets requests of its sticky sessions while it drains, and none once it is ejected", async () => {
    const { answers, set, port } = await several(2, { sticky: {} });
    const cookie = (await ask(port, { path: "/a/x" })).headers["set-cookie"]![0]!.split(";")[0]!;
    const headers = { Cookie: cookie };
    set("a", "drain");
    expect([await answers(3, { headers }), await answers(3)]).toEqual(["a a a", "b b b"]);
    set("a", "eject");
    expect(await answers(3, { headers })).toBe("b b b");
    set("a", "use");
    expect(await answers(2, { headers })).toBe("a a");
    const only = await several(1, { sticky: {} });
    const own = {
      headers: { Cookie: (await ask(only.port, { path: "/a/x" })).headers["set-cookie"]![0]!.split(";")[0]! },
    };
    only.set("a", "drain");
    expect([await only.answers(1, own), await only.answers(1)]).toEqual(["a", "503"]);
    only.set("a", "eject");
    expect(await only.answers(1, own)).toBe("503");
  });

  it.each(["drain", "eject"] as const)(
    "is not used (%s) if none is healthy, where one ejected by its failures is",
    async (state) => {
      const { answers, set, backends } = await several(3, {
        health: { enabled: false, passive: { max_failures: 1, statuses: [500] } },
      });
      backends[0]!.answer = backends[1]!.answer = (_request, response) => void response.writeHead(500).end();
      set("c", state);
      expect(await answers(4)).toBe("500 500 500 500");
      set("a", state);
      set("b", state);
      expect(await answers(1)).toBe("503");
    },
  );

  it("does not count as another one that is left: the only one that serves is not ejected for failures", async () => {
    const { answers, set, backends, gateway } = await several(2, {
      health: { enabled: false, passive: { max_failures: 1, statuses: [500] } },
    });
    set("b", "eject");
    backends[0]!.answer = (_request, response) => void response.writeHead(500).end();
    expect(await answers(3)).toBe("500 500 500");
    expect(
      gateway.health.services[0]!.upstreams.map(({ state, usable, adminState }) => [state, usable, adminState]),
    ).toEqual([
      ["unknown", true, null],
      ["unknown", false, "eject"],
    ]);
  });

  it("gets no retry, and none of a request that could not be sent elsewhere", async () => {
    for (const parts of [{ retries: { attempts: 2, on: ["connect", "reset", 503] } }, {}] satisfies Parts[]) {
      const { answers, set, backends } = await several(2, parts);
      await backends[0]!.kill();
      set("b", "eject");
      expect(await answers(3)).toBe("502 502 502");
      set("b", "use");
      expect(await answers(3)).toBe("b b b");
    }
  });

  it("gives its hashed requests to the others, and gets them back; no others move", async () => {
    const { answers, set } = await several(3, { load_balancing_strategy: "hash", hash_on: "header:X-User" });
    const homes = async () => {
      const all: string[] = [];
      for (let i = 0; i < 24; i++) all.push(await answers(1, { headers: { "X-User": `user-${i}` } }));
      return all;
    };
    const before = await homes();
    expect(new Set(before)).toEqual(new Set(["a", "b", "c"]));
    set("a", "eject");
    const without = await homes();
    expect(without).not.toContain("a");
    expect(without.every((home, i) => home === before[i] || before[i] === "a")).toBe(true);
    set("a", "use");
    expect(await homes()).toEqual(before);
  });

  it("leaves the share of its group to the rest", async () => {
    const { set, answers, config, gateway } = await several(2);
    const { upstreams } = config().services[0]!;
    await gateway.reload(
      config({
        upstreams: [upstreams[0]!, { ...upstreams[1]!, group: "canary" }],
        split: [{ group: "canary", percent: 100 }],
      }),
    );
    expect(await answers(2)).toBe("b b");
    set("b", "drain");
    expect(await answers(2)).toBe("a a");
    set("a", "eject");
    expect(await answers(2)).toBe("503 503");
    set("b", "use");
    expect(await answers(2)).toBe("b b");
  });

  it("gets no WebSocket, and keeps those that are open", async () => {
    const echo = await byteBackend((socket) => {
      socket.once("data", () => {
        socket.write(
          "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: " +
            "websocket\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n",
        );
        socket.on("data", (bytes: Buffer) => void socket.write(`echo ${String(bytes)}`));
      });
    });
    const { port, gateway } = await running(oneService(echo.port));
    const upgrade = get(
      "/a/x",
      "Connection: Upgrade",
      "Upgrade: websocket",
      "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
      "Sec-WebSocket-Version: 13",
    );
    const opened = await client(port);
    opened.send(upgrade);
    await opened.until("HTTP/1.1 101 ");
    set(gateway as Gateway, gateway.health.services[0]!.upstreams[0]!.id, "eject");
    const refused = await client(port);
    refused.send(upgrade);
    await refused.until("HTTP/1.1 503 ");
    opened.send("hello");
    await opened.until("echo hello");
  });

  it(
    "stays out over reloads, whatever its host, weight or strategy is then, " + "and has that weight once it is used",
    async () => {
      const { set, answers, config, gateway } = await several(2);
      const { upstreams } = config().services[0]!;
      const [a, b] = [upstreams[0]!, upstreams[1]!];
      const shown = () => gateway.health.services[0]!.upstreams.map(({ weight, adminState }) => [weight, adminState]);
      set("a", "eject");
      for (const parts of [
        {},
        { upstreams: [{ ...a, weight: 3 }, b] },
        {
          upstreams: [b, { ...a, host: "localhost", weight: 3 }],
          load_balancing_strategy: "hash" as const,
          hash_on: "client_ip" as const,
        },
        { upstreams: [{ ...a, weight: 3 }, b], health: { enabled: true } },
      ]) {
        await gateway.reload(config(parts));
        expect(await answers(4)).toBe("b b b b");
      }
      expect(shown()).toEqual([
        [3, "eject"],
        [1, null],
      ]);
      set("a", "use");
      expect((await answers(8)).split(" ").sort().join("")).toBe("aaaaaabb");
      expect(shown()).toEqual([
        [3, null],
        [1, null],
      ]);
    },
  );

  it("does not change the turns of the others by a reload", async () => {
    const { set, answers, config, gateway } = await several(3);
    set("c", "drain");
    expect(await answers(1)).toBe("a");
    await gateway.reload(config({ routes: [{ path: "/x" }, { path: "/y" }] }));
    expect(await answers(1)).toBe("b");
  });

  it("that failed requests is reported as back by a reload that ends its passive checks", async () => {
    const { log, lines } = recordedLog();
    const good = await restartableBackend("http");
    const upstreams = [
      { id: "down", host: "127.0.0.1", port: 9 },
      { id: "good", host: "127.0.0.1", port: good.port },
    ];
    const checked = (health: object) => oneService([], { upstreams, ...health });
    const passive = { max_failures: 1, eject_ms: 60_000 };
    const { gateway, port } = await running(checked({ health: { passive } }), { log });
    for (let i = 0; i < 4; i++) await ask(port, { path: "/a/x" });
    expect(lines.map(({ message }) => message)).toContain("upstream ejected: it fails requests");
    await gateway.reload(checked({ health: { passive: { ...passive, max_failures: 0 } } }));
    expect(lines.filter(({ message }) => message === "upstream back with a reload")).toMatchObject([
      { service: "s", upstream: "down", was: "ejected" },
    ]);
  });

  it("stays out after a reload that is refused", async () => {
    const { set, answers, gateway } = await several(2);
    set("a", "eject");
    await expect(gateway.reload({ services: [{ name: "" }] } as never)).rejects.toThrow();
    expect(await answers(2)).toBe("b b");
  });

  it("stays out when files are read again, also with new connections because of a new certificate", async () => {
    const ca = fileWith(String(CA.cert), "ca.pem");
    const { set, answers, gateway } = await several(
      2,
      { protocol: "https", tls: { ca, servername: "localhost" } },
      "https",
    );
    expect(await answers(2)).toBe("a b");
    set("a", "eject");
    writeFileSync(ca, `${String(CA.cert)}${String(OTHER_CA.cert)}`);
    expect(gateway.rereadFiles()).toBe(true);
    expect(await answers(3)).toBe("b b b");
    expect(gateway.health.services[0]!.upstreams.map(({ adminState }) => adminState)).toEqual(["eject", null]);
    set("a", "use");
    expect((await answers(2)).split(" ").sort().join("")).toBe("ab");
  });

  it("with a configured weight of 0 gets nothing after use, as before", async () => {
    const { set, answers, config, gateway } = await several(2);
    const { upstreams } = config().services[0]!;
    await gateway.reload(config({ upstreams: [{ ...upstreams[0]!, weight: 0 }, upstreams[1]!] }));
    for (const state of ["eject", "drain", "use"] as const) {
      set("a", state);
      expect(await answers(2)).toBe("b b");
      expect(gateway.health.services[0]!.upstreams[0]).toMatchObject({
        weight: 0,
        state: "draining",
        adminState: state === "use" ? null : state,
      });
    }
  });
});

describe("with workers", () => {
  it(
    "an upstream that is taken out stays out of each of them, over reloads, " + "until it is used again or gone",
    async () => {
      const [a, b] = [
        await backend((_request, response) => void response.end("a")),
        await backend((_request, response) => void response.end("b")),
      ];
      const config = oneService([], {
        upstreams: [a, b].map(({ port }, i) => ({ id: "ab"[i]!, host: "127.0.0.1", port })),
      });
      const { main, ports } = await together({ config, log: recordedLog().log });
      const answers = async () => {
        const found: string[] = [];
        for (const port of [...ports, ...ports]) found.push((await ask(port, { path: "/a/x" })).body.toString());
        return found.sort().join("");
      };
      const setAll = (state: State) => takenOutOf(Gateway.internalsOf(main)).set({ service: "s", id: "a", state });
      expect(await answers()).toBe("aabb");
      await setAll("eject");
      expect(await answers()).toBe("bbbb");
      await setAll("use");
      expect(await answers()).toBe("aabb");
      await setAll("drain");
      expect(await answers()).toBe("bbbb");
      await main.reload({ ...config, global: { name: "one" } });
      expect(await answers()).toBe("bbbb");
      expect(main.health.services[0]!.upstreams.map(({ adminState }) => adminState)).toEqual(["drain", null]);
      const [service] = config.services;
      await main.reload({ ...config, services: [{ ...service!, upstreams: service!.upstreams.slice(1) }] });
      expect(await answers()).toBe("bbbb");
      await main.reload(config);
      expect(await answers()).toBe("aabb");
      expect(main.health.services[0]!.upstreams.map(({ adminState }) => adminState)).toEqual([null, null]);
    },
  );
});
