import { execFile } from "node:child_process";
import { once } from "node:events";
import net from "node:net";
import http from "node:http";
import { describe, expect, it, onTestFinished } from "vitest";
import { SERVER } from "../support/certs.ts";
import { logReceiver } from "../support/log_receiver.ts";
import { fileWith, program } from "../support/process.ts";

interface Heard {
  readonly status: number;
  readonly headers: http.IncomingHttpHeaders;
  readonly body: string;
}

/** Does what a printed curl line would: `curl -s [-i] [-X METHOD] [-u USER] [-H HEADER] [-c FILE] [-b FILE] URL`. */
async function curl(line: string, jar: { cookie?: string }): Promise<Heard> {
  const words = [...line.matchAll(/'([^']*)'|(\S+)/g)].map((match) => match[1] ?? match[2]!);
  const headers: Record<string, string> = {};
  let [method, url, saves] = ["GET", "", false];
  for (let i = 1; i < words.length; i++) {
    const word = words[i]!;
    if (word === "-X") method = words[++i]!;
    else if (word === "-u") headers.Authorization = `Basic ${Buffer.from(words[++i]!).toString("base64")}`;
    else if (word === "-H") headers[words[i + 1]!.split(": ")[0]!] = words[++i]!.split(": ")[1]!;
    else if (word === "-b") (i++, (headers.Cookie = jar.cookie!));
    else if (word === "-c") (i++, (saves = true));
    else if (word === "-o" || word === "-w") i++;
    else if (word !== "-s" && word !== "-i") url = word;
  }
  const heard = await new Promise<Heard>((resolve, reject) => {
    const asked = http.request(
      url.replace("//localhost:", "//127.0.0.1:"),
      { method, headers, agent: false },
      (response) => {
        let body = "";
        response.setEncoding("utf8").on("data", (chunk: string) => (body += chunk));
        response.on("end", () => resolve({ status: response.statusCode!, headers: response.headers, body }));
      },
    );
    asked.on("error", reject).end();
  });
  if (saves) jar.cookie = heard.headers["set-cookie"]![0]!.split(";")[0]!;
  return heard;
}

async function running(environment: Record<string, string> = {}) {
  const demo = program(["demo", "--http-port", "0", "--admin-port", "0", "--manager-port", "0"], { environment });
  const text = await demo.says("Ctrl-C ends the demo.\n", "stdout");
  return { demo, text, lines: text.split("\n").filter((line) => /curl /.test(line)) };
}

describe("edge-gateway demo", () => {
  it("sends the lines of both logs to a collector, as the gateway does", async () => {
    const to = await logReceiver();
    const environment = { OTEL_LOGS_EXPORTER: "otlp", OTEL_EXPORTER_OTLP_LOGS_ENDPOINT: to.url };
    const { demo, text } = await running(environment);
    const [, url] = /(http:\S+\/shop)\/items\/42/.exec(text)!;
    await fetch(`${url!}/items/42`);
    demo.child.kill("SIGTERM");
    expect((await demo.ended).code).toBe(0);
    const bodies = to.lines.map(({ body }) => body);
    expect([bodies.includes("GET /shop/items/42 200"), bodies.at(-1)]).toEqual([true, "stopped"]);
  });

  it("listens on loopback only, unless LISTEN_HOST says otherwise", async () => {
    const reaches = async (environment: Record<string, string>) => {
      const { lines } = await running(environment);
      const port = Number(/:(\d+)\/shop/.exec(lines[0]!)![1]);
      // A gateway that listens on all addresses accepts connections here, too.
      const socket = net.connect(port, "127.0.0.2");
      const outcome = await once(socket, "connect").then(
        () => "connected",
        (error: NodeJS.ErrnoException) => error.code,
      );
      socket.destroy();
      return outcome;
    };
    expect(await reaches({})).toBe("ECONNREFUSED");
    expect(await reaches({ LISTEN_HOST: "127.0.0.2" })).toBe("connected");
  });

  it("prints lines that each do what the text beside them says", async () => {
    const { lines } = await running();
    const jar = {};
    const heard: Heard[] = [];
    for (const line of lines.filter((line) => line.startsWith("curl"))) heard.push(await curl(line, jar));
    const [first, second, none, wrong, locked, byQuery, byHeader, health, login, config] = heard as [
      Heard,
      Heard,
      Heard,
      Heard,
      Heard,
      Heard,
      Heard,
      Heard,
      Heard,
      Heard,
    ];
    // Routing and round robin
    expect(JSON.parse(first.body)).toMatchObject({ upstream: "one", method: "GET", path: "/items/42" });
    expect(JSON.parse(second.body)).toMatchObject({ upstream: "two", method: "GET", path: "/items/43" });
    expect([none.status, wrong.status]).toEqual([404, 405]);
    // key_auth
    expect([locked.status, byQuery.status, byHeader.status]).toEqual([401, 200, 200]);
    // Admin interface
    expect([health.status, login.status]).toEqual([200, 200]);
    expect(config.status).toBe(200);
    expect((JSON.parse(config.body) as { services: { name: string }[] }).services.map(({ name }) => name)).toEqual([
      "shop",
    ]);
    expect(heard).toHaveLength(10);
    // rate_limit
    const loop = lines.find((line) => line.startsWith("for i in 1 2 3 4; do"))!;
    const statuses: number[] = [];
    for (let i = 0; i < 4; i++) statuses.push((await curl(/curl .*(?=; done)/.exec(loop)![0], jar)).status);
    expect(statuses).toEqual([200, 200, 200, 429]);
  });

  it("prints lines for HTTPS where there is no plain listener", async () => {
    const [cert, key] = [fileWith(SERVER.cert, "cert.pem"), fileWith(SERVER.key, "key.pem")];
    const demo = program([
      "demo",
      "--http-port",
      "off",
      "--https-port",
      "0",
      "--admin-port",
      "0",
      "--manager",
      "false",
      "--server-cert-path",
      cert,
      "--server-key-path",
      key,
    ]);
    expect(await demo.says("Ctrl-C ends the demo.\n", "stdout")).toMatch(
      /^curl -k -s https:\/\/localhost:\d+\/shop\/items\/42$/m,
    );
  });

  it(
    "prints one line for each request to its gateway, " + "with the status and the upstream or the error code",
    async () => {
      const { demo, lines } = await running();
      for (const line of lines.filter((line) => /shop\/(items|nothing|orders)/.test(line) && !line.includes("?")))
        await curl(line, {});
      await demo.says(
        /GET \/shop\/items\/42 got 200 from upstream one\nGET \/shop\/items\/43 got 200 from upstream two\n/,
        "stdout",
      );
      await demo.says(
        /GET \/shop\/nothing got 404 route_not_found\nDELETE \/shop\/items\/42 got 405 method_not_allowed\n/,
        "stdout",
      );
      await demo.says(
        /GET \/shop\/orders got 401 key_missing\nGET \/shop\/orders got 200 from upstream one\n/,
        "stdout",
      );
    },
  );

  it("prints lines that can be pasted into a shell", async (context) => {
    const { lines } = await running();
    const shell = (line: string) =>
      new Promise<string>((resolve, reject) => {
        execFile("sh", ["-c", line.replaceAll("/tmp/edge-gateway-demo.cookies", jar)], (error, stdout) =>
          error === null ? resolve(stdout) : reject(error),
        );
      });
    const jar = `/tmp/edge-gateway-demo-${process.pid}.cookies`;
    // Without curl on the machine only the promise above can be kept.
    if (
      await shell("command -v curl").then(
        () => false,
        () => true,
      )
    )
      return context.skip("this machine has no curl");
    onTestFinished(() => void execFile("rm", ["-f", jar]));
    const loop = lines.find((line) => line.startsWith("for "))!;
    expect((await shell(loop)).trim().split("\n")).toEqual(["200", "200", "200", "429"]);
    for (const line of lines.filter((line) => line !== loop)) expect(await shell(line)).not.toBe("");
    expect(await shell(lines.at(-1)!)).toContain('"services"');
  });

  it("the demo has its own credentials, and neither uses nor prints the credentials of the environment", async () => {
    const { text } = await running({ ADMIN_USER: "real", ADMIN_PASSWORD: "really secret" });
    expect(text).not.toContain("really secret");
    expect(text).toMatch(/\(admin \/ [\w-]{12}\)/);
  });

  it("refuses AUDIT_LOG, which it would not write", async () => {
    const { code, stderr } = await program(["demo", "--http-port", "0"], { environment: { AUDIT_LOG: "audit.log" } })
      .ended;
    expect([code, stderr]).toEqual([
      2,
      expect.stringContaining("the demo writes no audit log: leave AUDIT_LOG (--audit-log) out"),
    ]);
  });

  it("ends with exit 0 on SIGINT, upstreams included", async () => {
    const { demo } = await running();
    demo.child.kill("SIGINT");
    expect(await demo.ended).toMatchObject({ code: 0, signal: null });
  });
});
