/** Starts Debian's pebble, a directory of RFC 8555 for tests, with its DNS server; both end with the test. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import https from "node:https";
import { join } from "node:path";
import { onTestFinished } from "vitest";
import { freePort } from "../bench/peers/machine.ts";
import { CA, SERVER } from "../support/certs.ts";
import { isOpen } from "../support/listening.ts";
import { soon } from "./browser.ts";
import { emptyFolder } from "./built.ts";

interface PebbleOptions {
  /** Where it looks for answers to http-01 and tls-alpn-01. */
  readonly httpPort?: number;
  readonly tlsPort?: number;
  /** Members of its configuration. */
  readonly config?: Record<string, unknown>;
  /** "PEBBLE_WFE_NONCEREJECT" and the like. */
  readonly env?: Record<string, string>;
}

export interface Pebble {
  /** The URL of the directory, whose server is certified by `CA`. */
  readonly directory: string;
  /** How many it has. */
  readonly orders: number;
  readonly accounts: number;
  /** The certificate of the CA that issues, PEM. */
  root(): Promise<string>;
}

export async function pebble({ httpPort = 1, tlsPort = 1, config, env }: PebbleOptions): Promise<Pebble> {
  const folder = emptyFolder();
  const [port, managementPort, dnsPort, dnsManagementPort] = [
    await freePort(),
    await freePort(),
    await freePort(),
    await freePort(),
  ];
  writeFileSync(join(folder, "cert.pem"), SERVER.cert);
  writeFileSync(join(folder, "key.pem"), SERVER.key);
  const settings = {
    listenAddress: `127.0.0.1:${port}`,
    managementListenAddress: `127.0.0.1:${managementPort}`,
    certificate: "cert.pem",
    privateKey: "key.pem",
    httpPort,
    tlsPort,
    ocspResponderURL: "",
    externalAccountBindingRequired: false,
    ...config,
  };
  writeFileSync(join(folder, "pebble.json"), JSON.stringify({ pebble: settings }));
  const dns = ["-defaultIPv6", "", "-dns01", `127.0.0.1:${dnsPort}`, "-management", `127.0.0.1:${dnsManagementPort}`];
  const none = ["-http01", "", "-https01", "", "-tlsalpn01", ""];
  run("pebble-challtestsrv", [...dns, ...none], folder);
  const output = run("pebble", ["-config", "pebble.json", "-dnsserver", `127.0.0.1:${dnsPort}`], folder, {
    PEBBLE_VA_NOSLEEP: "1",
    ...env,
  });
  await soon(() => isOpen(port)).toBe(true);
  await soon(() => isOpen(dnsManagementPort)).toBe(true);
  return {
    directory: `https://localhost:${port}/dir`,
    get orders() {
      return output().match(/Added order/g)?.length ?? 0;
    },
    get accounts() {
      return Number(
        output()
          .match(/(?<=There are now )\d+(?= accounts in memory)/g)
          ?.at(-1) ?? 0,
      );
    },
    root: () => text(`https://localhost:${managementPort}/roots/0`),
  };
}

function run(command: string, args: readonly string[], cwd: string, env: Record<string, string> = {}): () => string {
  const child = spawn(command, args, { cwd, stdio: ["ignore", "pipe", "ignore"], env: { ...process.env, ...env } });
  let output = "";
  child.stdout.setEncoding("utf8").on("data", (text: string) => (output += text));
  const ended = once(child, "exit");
  onTestFinished(async () => {
    child.kill("SIGKILL");
    await ended;
  });
  return () => output;
}

async function text(url: string): Promise<string> {
  const request = https.get(url, { ca: CA.cert, agent: false });
  const [response] = (await once(request, "response")) as [AsyncIterable<Buffer>];
  const chunks: Buffer[] = [];
  for await (const chunk of response) chunks.push(chunk);
  return Buffer.concat(chunks).toString();
}
