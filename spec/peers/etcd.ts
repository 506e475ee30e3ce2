/** Starts Debian's etcd-server on free ports, in temporary folders, and ends it with the test. */
import { execFile, spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { onTestFinished } from "vitest";
import { freePort } from "../support/origin.ts";
import { authority } from "../support/pki.ts";

export interface EtcdMember {
  readonly url: URL;
  readonly process: ChildProcess;
  stop(signal?: NodeJS.Signals): Promise<void>;
  /** On the same ports, with the same data. */
  start(): void;
}

export interface Etcd {
  readonly members: readonly EtcdMember[];
  /** Has ca.pem, client.pem and client.key. */
  readonly folder: string;
  /** "etcd://127.0.0.1:40001,127.0.0.1:40002/KEY" */
  urlOf(key: string): string;
  /** Runs etcdctl against the members that run; its output without the last line break. */
  ctl(...args: string[]): Promise<string>;
  /** The same with standard input. */
  ctlWith(input: string | Buffer, ...args: string[]): Promise<string>;
}

/** Is told what ends the members. */
type Keep = (end: () => Promise<void>) => void;

interface EtcdOptions {
  /** Further flags of etcd. */
  readonly args?: readonly string[];
  /** Clients come over TLS, with certificates of the CA. */
  readonly tls?: boolean;
  /** Default: they end with the test. */
  readonly keep?: Keep;
}

export async function etcd(
  count: 1 | 3 = 1,
  { args = [], tls = false, keep = onTestFinished }: EtcdOptions = {},
): Promise<Etcd> {
  const folder = mkdtempSync(join(tmpdir(), "edge-gateway-etcd-"));
  // The JSON gateway is a client of its own member, and presents the member's certificate: etcd refuses it where its
  // extended key usage has servers alone. These have none.
  const ca = authority("etcd CA");
  const [server, client] = [ca.issue("etcd", { hosts: ["localhost"] }), ca.issue("gateway")];
  const files = {
    ...{ "ca.pem": ca.cert, "server.pem": server.cert, "server.key": server.key },
    ...{ "client.pem": client.cert, "client.key": client.key },
  };
  for (const [name, content] of Object.entries(files)) writeFileSync(join(folder, name), content);
  const places: { readonly name: string; readonly client: number; readonly peer: number }[] = [];
  for (let i = 0; i < count; i++) places.push({ name: `m${i}`, client: await freePort(), peer: await freePort() });
  const all = places.map(({ name, peer }) => `${name}=http://127.0.0.1:${peer}`).join(",");
  const scheme = tls ? "https" : "http";
  const secure = tls
    ? ["--cert-file", "server.pem", "--key-file", "server.key", "--client-cert-auth", "--trusted-ca-file", "ca.pem"]
    : [];
  const members = places.map(({ name, client, peer }): EtcdMember => {
    const url = `${scheme}://${tls ? "localhost" : "127.0.0.1"}:${client}`;
    const flags = {
      "--name": name,
      "--data-dir": join(folder, name),
      "--listen-client-urls": `${scheme}://127.0.0.1:${client}`,
      "--advertise-client-urls": url,
      "--listen-peer-urls": `http://127.0.0.1:${peer}`,
      "--initial-advertise-peer-urls": `http://127.0.0.1:${peer}`,
      "--initial-cluster": all,
      "--log-level": "error",
    };
    const start = () =>
      spawn("etcd", [...Object.entries(flags).flat(), "--unsafe-no-fsync", ...secure, ...args], {
        cwd: folder,
        stdio: "ignore",
      });
    let child = start();
    return {
      url: new URL(url),
      get process() {
        return child;
      },
      async stop(signal = "SIGKILL") {
        if (child.exitCode !== null || child.signalCode !== null) return;
        const ended = once(child, "exit");
        child.kill(signal);
        // Stopped processes do not end otherwise.
        child.kill("SIGCONT");
        await ended;
      },
      start: () => void (child = start()),
    };
  });
  keep(async () => {
    await Promise.all(members.map((member) => member.stop()));
    rmSync(folder, { recursive: true, force: true });
  });
  const running = () =>
    members
      .filter(({ process }) => process.exitCode === null && process.signalCode === null)
      .map(({ url }) => url.href);
  const certificates = tls ? ["--cacert", "ca.pem", "--cert", "client.pem", "--key", "client.key"] : [];
  const ctlWith = async (input: string | Buffer, ...words: string[]) => {
    const endpoints = running().map((href) => href.slice(0, -1));
    const run = promisify(execFile)("etcdctl", ["--endpoints", endpoints.join(","), ...certificates, ...words], {
      cwd: folder,
      env: { ...process.env, ETCDCTL_API: "3" },
      maxBuffer: 64 * 1024 * 1024,
    });
    run.child.stdin!.end(input);
    return (await run).stdout.trimEnd();
  };
  const made: Etcd = {
    members,
    folder,
    urlOf: (key) => `etcd${tls ? "s" : ""}://${members.map(({ url }) => url.host).join(",")}/${key}`,
    ctl: (...words) => ctlWith("", ...words),
    ctlWith,
  };
  for (let tries = 0; ; tries++) {
    try {
      await made.ctl("endpoint", "health");
      return made;
    } catch (error) {
      if (tries === 60) throw error;
      await new Promise((resolve) => setTimeout(resolve, 200));
    }
  }
}

/** The member that leads. */
export async function leaderOf({ members, ctl }: Etcd): Promise<EtcdMember> {
  const states = JSON.parse(await ctl("endpoint", "status", "-w", "json")) as {
    readonly Endpoint: string;
    readonly Status: { readonly leader: number; readonly header: { readonly member_id: number } };
  }[];
  // Ids are beyond exact numbers, but equal where they are rounded alike.
  const found = states.find(({ Status: { leader, header } }) => leader === header.member_id);
  const member = members.find(({ url }) => found !== undefined && url.href.startsWith(found.Endpoint));
  if (member === undefined) throw new Error("no member of etcd leads");
  return member;
}
