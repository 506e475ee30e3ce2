/**
 * The examples of hosts with frameworks (docs/embedding.md) run as they are; only their port is another. Next itself is
 * stood in for.
 */
import { fork } from "node:child_process";
import { once } from "node:events";
import { copyFileSync, mkdirSync, symlinkSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, it, onTestFinished } from "vitest";
import { backend } from "../support/gateway.ts";
import { emptyFolder } from "./built.ts";

const ROOT = fileURLToPath(new URL("../..", import.meta.url));
const { WebSocket, WebSocketServer } = createRequire(import.meta.url)("ws") as {
  WebSocket: new (url: string) => NodeJS.EventEmitter & { send(text: string): void; terminate(): void };
  WebSocketServer: new (options: { noServer: true }) => {
    handleUpgrade(...given: [...unknown[], (socket: NodeJS.EventEmitter & { send(text: string): void }) => void]): void;
  };
};

/** Has every server listen on a free port instead, and reports it. */
const ANY_PORT = `
import net from "node:net";
const { listen } = net.Server.prototype;
net.Server.prototype.listen = function (_port, ...more) {
  this.once("listening", () => process.send(this.address().port));
  return listen.call(this, { port: 0, host: "127.0.0.1" }, ...more.filter((each) => typeof each === "function"));
};`;

/**
 * The interface of Next's custom server, which adds an "upgrade" listener to the server of the first request that
 * ignores foreign paths.
 */
const NEXT = `
export default () => {
  let isListening = false;
  return {
    prepare: async () => {},
    getRequestHandler: () => async (request, response) => {
      if (!isListening) request.socket.server.on("upgrade", () => {});
      isListening = true;
      if (request.method !== "POST") return response.end("own " + request.url);
      response.end(Buffer.concat(await request.toArray()));
    },
  };
};`;

/**
 * Runs an example in front of an upstream that answers with what it gets, and with WebSockets; resolves with its port.
 */
async function host(name: string, prefix: string): Promise<number> {
  const folder = emptyFolder();
  const upstream = await backend((request, response, body) =>
    response.end(
      JSON.stringify({ url: request.url, prefix: request.headers["x-forwarded-prefix"], body: body.toString() }),
    ),
  );
  const sockets = new WebSocketServer({ noServer: true });
  upstream.server.on("upgrade", (request, socket, head) => {
    sockets.handleUpgrade(request, socket, head, (opened) =>
      opened.on("message", (data) => opened.send(`upstream ${String(data)}`)),
    );
  });
  const service = { name: "s", base_path: `${prefix}/shop`, upstreams: [{ host: "127.0.0.1", port: upstream.port }] };
  const moved = { path: "/old", plugins: [{ name: "redirect", config: { location: "${request.path}/new" } }] };
  writeFileSync(
    join(folder, "gw.json"),
    JSON.stringify({ services: [{ ...service, routes: [{ path: "/{rest*}" }, moved] }] }),
  );
  copyFileSync(join(ROOT, "examples", `${name}.mjs`), join(folder, "host.mjs"));
  mkdirSync(join(folder, "node_modules/next"), { recursive: true });
  symlinkSync(ROOT, join(folder, "node_modules/edge-gateway"));
  for (const each of ["express", "fastify", "koa", "ws"])
    symlinkSync(join(ROOT, "spec/peers/node_modules", each), join(folder, "node_modules", each));
  writeFileSync(
    join(folder, "node_modules/next/package.json"),
    JSON.stringify({ name: "next", type: "module", exports: "./index.js" }),
  );
  writeFileSync(join(folder, "node_modules/next/index.js"), NEXT);
  const child = fork(join(folder, "host.mjs"), {
    cwd: folder,
    execArgv: ["--import", `data:text/javascript,${encodeURIComponent(ANY_PORT)}`],
  });
  onTestFinished(async () => {
    const ended = once(child, "exit");
    child.kill();
    await ended;
  });
  return ((await once(child, "message")) as [number])[0];
}

/** The answer to one message over a WebSocket. */
async function said(url: string): Promise<string> {
  const socket = new WebSocket(url);
  onTestFinished(() => socket.terminate());
  await once(socket, "open");
  socket.send("hello");
  return String((await once(socket, "message"))[0]);
}

describe.each([
  ["host_node", ""],
  ["host_express", "/gw"],
  ["host_fastify", ""],
  ["host_koa", ""],
  ["host_next", ""],
])("examples/%s.mjs", (name, prefix) => {
  it(
    "serves the gateway's requests, bodies, redirects and WebSockets, " +
      "and leaves the host's own pages and bodies to the host",
    async () => {
      const port = await host(name, prefix);
      const url = `http://127.0.0.1:${port}`;
      const json = { method: "POST", headers: { "Content-Type": "application/json" }, body: '{"a":1}' };
      expect(await (await fetch(`${url}/own`)).text()).toBe("own /own");
      if (name !== "host_node") expect(await (await fetch(`${url}/own`, json)).text()).toBe('{"a":1}');
      expect(await (await fetch(`${url}${prefix}/shop/x?q`)).json()).toEqual({
        url: "/x?q",
        prefix: `${prefix}/shop`,
        body: "",
      });
      expect(await (await fetch(`${url}${prefix}/shop/x`, json)).json()).toMatchObject({ url: "/x", body: '{"a":1}' });
      expect((await fetch(`${url}${prefix}/shop/old`, { redirect: "manual" })).headers.get("location")).toBe(
        `${prefix}/shop/old/new`,
      );
      expect(await said(`ws://127.0.0.1:${port}${prefix}/shop/socket`)).toBe("upstream hello");
      if (name === "host_node") expect(await said(`ws://127.0.0.1:${port}/own`)).toBe("own hello");
    },
  );
});
