import { spawn } from "node:child_process";
import { closeSync, openSync } from "node:fs";
import { request } from "node:https";
import net from "node:net";
import { describe, expect, it, onTestFinished } from "vitest";
import { createLog, silentLog } from "../../lib/base/log.ts";
import { passedSockets } from "../../lib/cli/socket_activation.ts";
import { CA, SERVER } from "../support/certs.ts";
import { backend, oneService } from "../support/gateway.ts";
import { fileWith, PROGRAM } from "../support/process.ts";
import { ask, connect, eventually } from "../support/raw_client.ts";
import { pem } from "./pem.ts";

const SETTINGS = { httpPort: 8008, workers: 1 } as const;
const MINE = { LISTEN_PID: "42" };

describe("sockets that a service manager passes", () => {
  it.each<[Record<string, string>, object]>([
    [{}, { http: [], https: [] }],
    [{ LISTEN_FDS: "" }, { http: [], https: [] }],
    [
      { ...MINE, LISTEN_FDS: "1" },
      { http: [3], https: [] },
    ],
    [
      { ...MINE, LISTEN_FDS: "2" },
      { http: [3], https: [4] },
    ],
    [
      { ...MINE, LISTEN_FDS: "1", LISTEN_FDNAMES: "edge-gateway.socket" },
      { http: [3], https: [] },
    ],
    [
      { ...MINE, LISTEN_FDS: "2", LISTEN_FDNAMES: "a.socket:b.socket" },
      { http: [3], https: [4] },
    ],
    [
      { ...MINE, LISTEN_FDS: "2", LISTEN_FDNAMES: "https:http" },
      { http: [4], https: [3] },
    ],
    [
      { ...MINE, LISTEN_FDS: "4", LISTEN_FDNAMES: "http:https:http:https" },
      { http: [3, 5], https: [4, 6] },
    ],
    [
      { ...MINE, LISTEN_FDS: "1", LISTEN_FDNAMES: "https" },
      { http: [], https: [3] },
    ],
  ])("%j gives %j", (environment, sockets) => {
    expect(passedSockets(environment, 42, SETTINGS, silentLog)).toEqual(sockets);
  });

  it.each<[Record<string, string>, string]>([
    [{ LISTEN_FDS: "one" }, 'LISTEN_FDS: expected the number of sockets, found "one"'],
    [{ LISTEN_FDS: "0" }, 'LISTEN_FDS: expected the number of sockets, found "0"'],
    [{ LISTEN_FDS: "-1" }, 'LISTEN_FDS: expected the number of sockets, found "-1"'],
    [{ LISTEN_FDS: "2", LISTEN_FDNAMES: "http" }, "LISTEN_FDNAMES has 1 names for 2 sockets (LISTEN_FDS)"],
    [
      { LISTEN_FDS: "2", LISTEN_FDNAMES: "http:admin" },
      'LISTEN_FDNAMES: expected http or https for every socket, found "admin"; name them with',
    ],
    [
      { LISTEN_FDS: "3" },
      "3 sockets are passed (LISTEN_FDS) whose names do not say what each is for; " +
        "name them with FileDescriptorName=http",
    ],
  ])("%j is refused", (environment, message) => {
    expect(() => passedSockets({ ...MINE, ...environment }, 42, SETTINGS, silentLog)).toThrow(
      expect.objectContaining({ exitCode: 2, message: expect.stringContaining(message) as string }),
    );
  });

  it("a socket for HTTP is refused where HTTP_PORT is off; one for HTTPS is not", () => {
    const settings = { ...SETTINGS, httpPort: null };
    expect(() => passedSockets({ ...MINE, LISTEN_FDS: "1" }, 42, settings, silentLog)).toThrow(
      "a socket for HTTP is passed (LISTEN_FDS), and HTTP_PORT is off: leave one of them out",
    );
    expect(passedSockets({ ...MINE, LISTEN_FDS: "1", LISTEN_FDNAMES: "https" }, 42, settings, silentLog)).toEqual({
      http: [],
      https: [3],
    });
  });

  it("with several workers passed sockets are refused, and the message says what to do", () => {
    const settings = { ...SETTINGS, workers: 4 as never };
    expect(() => passedSockets({ ...MINE, LISTEN_FDS: "1" }, 42, settings, silentLog)).toThrow(
      "set WORKERS to 1, or start without the socket unit",
    );
    expect(passedSockets({}, 42, settings, silentLog)).toEqual({ http: [], https: [] });
  });

  it.each([["43"], [undefined]])("sockets for process %s are left alone by process 42, which logs why", (owner) => {
    let logged = "";
    const log = createLog({ write: (line) => void (logged += line) });
    expect(passedSockets({ LISTEN_FDS: "1", LISTEN_PID: owner }, 42, SETTINGS, log)).toEqual({ http: [], https: [] });
    expect(logged).toMatch(
      new RegExp(
        String.raw` warn +LISTEN_FDS is ignored: it is for (process 43|no process \(LISTEN_PID is ` +
          String.raw`not set\)), this one is 42; start edge-gateway itself, or with exec`,
      ),
    );
  });
});

/** A bound socket that nobody accepts from but a program it is passed to. */
interface Held {
  readonly fd: number;
  readonly port: number;
}

function held(host = "127.0.0.1"): Held {
  // The handle of a server before it listens; `net` makes it for node:cluster.
  const { _createServerHandle: bind } = net as unknown as {
    _createServerHandle(host: string, port: number, family: 4): BoundHandle;
  };
  const handle = bind(host, 0, 4);
  onTestFinished(() => handle.close());
  const name = { port: 0 };
  handle.getsockname(name);
  return { fd: handle.fd, port: name.port };
}

interface BoundHandle {
  readonly fd: number;
  getsockname(into: { port: number }): void;
  close(): void;
}

/** Starts the program with these file descriptors as 3, 4, …, as systemd does. */
function activated(
  config: unknown,
  fds: readonly number[],
  environment: Record<string, string> = {},
  words: readonly string[] = [],
) {
  const command = [
    PROGRAM,
    "--config",
    fileWith(config),
    "--http-port",
    "0",
    "--https-port",
    "0",
    "--listen-host",
    "127.0.0.1",
    ...words,
  ];
  const child = spawn("sh", ["-c", 'LISTEN_PID=$$ exec "$@"', "sh", process.execPath, ...command], {
    env: { PATH: process.env.PATH, LISTEN_FDS: String(fds.length), ...environment },
    stdio: ["ignore", "ignore", "pipe", ...fds],
  });
  let said = "";
  child.stderr!.on("data", (chunk: Buffer) => (said += chunk.toString()));
  const ended = new Promise<number | null>((resolve) => child.once("close", resolve));
  onTestFinished(async () => {
    child.kill("SIGKILL");
    await ended;
  });
  return { child, ended, said: () => said, started: () => eventually(() => / started"/.test(said), "a start") };
}

describe("a gateway with passed sockets", () => {
  it("a passed socket is used in place of HTTP_PORT, and no other port is opened", async () => {
    const origin = await backend();
    const socket = held();
    const gateway = activated(oneService(origin.port), [socket.fd]);
    await gateway.started();
    expect(gateway.said()).toContain(`"http":["http://127.0.0.1:${socket.port}"]`);
    expect(gateway.said()).toContain("listening on sockets that were passed (LISTEN_FDS)");
    expect((await ask(socket.port, { path: "/a/x" })).status).toBe(200);
  });

  it("sockets named http and https, in any order, serve plain requests and TLS", async () => {
    const origin = await backend();
    const [secure, plain] = [held(), held()];
    const { cert, key } = pem({ cert: SERVER.cert, key: SERVER.key });
    const environment = { LISTEN_FDNAMES: "https:http", SERVER_CERT_PATH: cert!, SERVER_KEY_PATH: key! };
    await activated(oneService(origin.port), [secure.fd, plain.fd], environment).started();
    expect((await ask(plain.port, { path: "/a/x" })).status).toBe(200);
    const status = await new Promise((resolve, reject) => {
      const options = {
        host: "127.0.0.1",
        port: secure.port,
        servername: "localhost",
        ca: CA.cert,
        path: "/a/x",
        agent: false,
      };
      request(options, (response) => resolve(response.resume().statusCode))
        .on("error", reject)
        .end();
    });
    expect(status).toBe(200);
  });

  it("a socket for HTTPS serves global.certificates, and is refused without a certificate", async () => {
    const origin = await backend();
    const secure = held();
    const files = pem({ cert: SERVER.cert, key: SERVER.key });
    const certificates = [{ hosts: ["localhost"], cert: files.cert!, key: files.key! }];
    const environment = { LISTEN_FDNAMES: "https" };
    const gateway = activated(oneService(origin.port, {}, { certificates }), [secure.fd], environment);
    await gateway.started();
    expect(gateway.said()).toContain(`"https":["https://127.0.0.1:${secure.port}"]`);
    const refused = activated(oneService(origin.port), [held().fd], environment);
    expect(await refused.ended).toBe(2);
    expect(refused.said()).toContain(
      "a socket for HTTPS is passed (LISTEN_FDS), and there is no certificate: name one in global.certificates ",
    );
  });

  it(
    "a restart loses no connection: one made while no process runs is answered by the next " +
      "process, and none is refused",
    async () => {
      const origin = await backend();
      const socket = held();
      const first = activated(oneService(origin.port), [socket.fd]);
      await first.started();
      first.child.kill("SIGTERM");
      expect(await first.ended).toBe(0);
      const client = await connect(socket.port);
      client.send("GET /a/x HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
      const second = activated(oneService(origin.port), [socket.fd]);
      expect(await client.closed()).toMatch(/^HTTP\/1\.1 200 OK\r\n/);
      second.child.kill("SIGTERM");
      expect(await second.ended).toBe(0);
    },
  );

  it("a file descriptor that is no TCP socket ends the start with 2, and names it", async () => {
    const file = fileWith("{}");
    const fd = openSync(file, "r");
    onTestFinished(() => closeSync(fd));
    const { ended, said } = activated(oneService(9), [fd]);
    expect(await ended).toBe(2);
    expect(said()).toContain("file descriptor 3, passed by LISTEN_FDS, is no TCP socket to listen on");
  });

  it("a Unix socket ends the start with 2", async () => {
    const server = net.createServer();
    await new Promise<void>((resolve) => server.listen(`${fileWith("")}.sock`, resolve));
    onTestFinished(() => void server.close());
    const { fd } = (server as unknown as { _handle: { fd: number } })._handle;
    const { ended, said } = activated(oneService(9), [fd]);
    expect(await ended).toBe(2);
    expect(said()).toContain(
      "file descriptor 3, passed by LISTEN_FDS, is no TCP socket to listen on: it is not a TCP socket",
    );
  });

  it("fewer sockets than LISTEN_FDS says end the start with 2", async () => {
    const { ended, said } = activated(oneService(9), [held().fd], { LISTEN_FDS: "2", LISTEN_FDNAMES: "http:http" });
    expect(await ended).toBe(2);
    expect(said()).toContain("file descriptor 4, passed by LISTEN_FDS, is no TCP socket to listen on");
  });
});
