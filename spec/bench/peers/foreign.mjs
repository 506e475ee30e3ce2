/**
 * The proxies of `spec/bench/package.json`, each set up as its documentation says: forwarded headers, kept backend
 * connections, no log.
 * Arguments: WHICH PORT BACKEND_PORT ROUTES(0: everything) HTTP_VERSION [CERT KEY].
 */
import { readFileSync } from "node:fs";
import http from "node:http";
import https from "node:https";

const KEEP_MS = 600_000;
const [which, port, backendPort, routes, version, certFile, keyFile] = process.argv.slice(2);
const target = `http://127.0.0.1:${backendPort}`;
const tls = certFile === undefined ? null : { cert: readFileSync(certFile), key: readFileSync(keyFile) };
const prefixes = Array.from({ length: Number(routes) }, (_none, i) => `/r${i}`);

const STARTS = {
  async "http-proxy"() {
    const { default: httpProxy } = await import("http-proxy");
    const agent = new http.Agent({ keepAlive: true, maxSockets: 256, maxFreeSockets: 256 });
    const proxy = httpProxy.createProxyServer({ target, agent, xfwd: true });
    proxy.on("error", (_error, _request, response) => response.destroy());
    const handler = (request, response) => proxy.web(request, response);
    const server = tls === null ? http.createServer(handler) : https.createServer(tls, handler);
    server.keepAliveTimeout = KEEP_MS;
    server.listen(Number(port), "127.0.0.1", 4096);
  },
  async fastify() {
    const { default: fastify } = await import("fastify");
    const { default: plugin } = await import("@fastify/http-proxy");
    const server = fastify({
      logger: false,
      keepAliveTimeout: KEEP_MS,
      ...(version === "2" ? { http2: true } : {}),
      ...(tls === null ? {} : { https: { ...tls, allowHTTP1: true } }),
    });
    const proxy = { upstream: target, undici: { connections: 256, pipelining: 1 } };
    if (prefixes.length === 0) server.register(plugin, proxy);
    for (const prefix of prefixes) server.register(plugin, { ...proxy, prefix, rewritePrefix: prefix });
    await server.listen({ port: Number(port), host: "127.0.0.1", backlog: 4096 });
  },
  async "fast-gateway"() {
    const { default: gateway } = await import("fast-gateway");
    const server = tls === null ? http.createServer() : https.createServer(tls);
    server.keepAliveTimeout = KEEP_MS;
    const proxyConfig = { maxSockets: 256, maxFreeSockets: 256 };
    const service = gateway({
      restana: { server },
      routes:
        prefixes.length === 0
          ? [{ prefix: "", pathRegex: "/*", target, proxyConfig }]
          : prefixes.map((prefix) => ({ prefix, prefixRewrite: prefix, target, proxyConfig })),
    });
    await service.start(Number(port), "127.0.0.1");
  },
};

await STARTS[which]();
