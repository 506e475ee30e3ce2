/** A name server on one port of 127.0.0.1, over UDP and TCP (RFC 1035): real packets, with the answers of a test. */
import dgram from "node:dgram";
import { once } from "node:events";
import net, { type AddressInfo } from "node:net";
import dns from "node:dns";
import { onTestFinished } from "vitest";

export interface Srv {
  readonly name: string;
  readonly port: number;
  /** Default 0. */
  readonly priority?: number;
  /** Default 1. */
  readonly weight?: number;
}

/** What is answered for one name. */
export type Answer =
  | readonly Srv[]
  /** IPv4 addresses. */
  | { readonly a: readonly string[] }
  | "NXDOMAIN"
  | "SERVFAIL"
  /** Nothing at all. */
  | "silent"
  /** A packet that is none. */
  | "malformed";

export interface DnsServer {
  readonly port: number;
  /** By name; a name that is not here does not exist. */
  readonly answers: Map<string, Answer>;
  /** "udp SRV _http._tcp.a.test" */
  readonly asked: string[];
  /** Above 0: how long each answer takes, in milliseconds. */
  delayMs: number;
  /** As `GatewayOptions.lookUpService`, by this server. */
  readonly lookUpService: (record: string) => Promise<dns.SrvRecord[]>;
  /** As `GatewayOptions.lookup`, by this server: IPv4 addresses alone. */
  readonly lookup: (host: string) => Promise<{ readonly address: string; readonly family: number }[]>;
}

const TYPES = new Map([
  [1, "A"],
  [28, "AAAA"],
  [33, "SRV"],
]);
/** Without EDNS a datagram has no more (RFC 1035 §4.2.1). */
const MAX_DATAGRAM = 512;

/** Closed when the test ends. `tries`: of the client. */
export async function dnsServer({ timeout = 200, tries = 2 } = {}): Promise<DnsServer> {
  const udp = dgram.createSocket("udp4");
  const open = new Set<net.Socket>();
  const timers = new Set<NodeJS.Timeout>();
  const tcp = net.createServer((socket) => {
    open.add(socket.on("error", () => {}).on("close", () => void open.delete(socket)));
    let read = Buffer.alloc(0);
    socket.on("data", (chunk) => {
      read = Buffer.concat([read, chunk]);
      while (read.length >= 2 && read.length >= 2 + read.readUInt16BE(0)) {
        const length = read.readUInt16BE(0);
        reply(read.subarray(2, 2 + length), "tcp", (packet) => {
          const head = Buffer.alloc(2);
          head.writeUInt16BE(packet.length);
          if (!socket.destroyed) socket.write(Buffer.concat([head, packet]));
        });
        read = read.subarray(2 + length);
      }
    });
  });
  const resolver = () => {
    const made = new dns.promises.Resolver({ timeout, tries });
    made.setServers([`127.0.0.1:${self.port}`]);
    return made;
  };
  const self: DnsServer = {
    port: 0,
    answers: new Map(),
    asked: [],
    delayMs: 0,
    lookUpService: (record) => resolver().resolveSrv(record),
    lookup: async (host) => (await resolver().resolve4(host)).map((address) => ({ address, family: 4 })),
  };
  const reply = (query: Buffer, over: "udp" | "tcp", send: (packet: Buffer) => void) => {
    const { name, type, end } = questionIn(query);
    self.asked.push(`${over} ${TYPES.get(type) ?? type} ${name}`);
    const answer = self.answers.get(name) ?? "NXDOMAIN";
    if (answer === "silent") return;
    let packet = packetOf(query.subarray(0, end), type, answer);
    if (over === "udp" && packet.length > MAX_DATAGRAM) packet = packetOf(query.subarray(0, end), type, "truncated");
    if (self.delayMs === 0) return send(packet);
    const timer = setTimeout(() => (timers.delete(timer), send(packet)), self.delayMs);
    timers.add(timer);
  };
  udp.on("message", (query, from) => reply(query, "udp", (packet) => udp.send(packet, from.port, from.address)));
  // One port that is free for both.
  for (;;) {
    tcp.listen(0, "127.0.0.1");
    await once(tcp, "listening");
    const { port } = tcp.address() as AddressInfo;
    const isBound = await new Promise<boolean>((resolve) => {
      udp.once("error", () => resolve(false));
      udp.bind(port, "127.0.0.1", () => resolve(true));
    });
    if (isBound) {
      Object.assign(self, { port });
      break;
    }
    tcp.close();
  }
  onTestFinished(() => {
    for (const timer of timers) clearTimeout(timer);
    udp.close();
    tcp.close();
    for (const socket of open) socket.destroy();
  });
  return self;
}

function questionIn(query: Buffer): { readonly name: string; readonly type: number; readonly end: number } {
  const labels: string[] = [];
  let at = 12;
  while (query[at] !== 0) {
    labels.push(query.toString("latin1", at + 1, at + 1 + query[at]!));
    at += 1 + query[at]!;
  }
  return { name: labels.join(".").toLowerCase(), type: query.readUInt16BE(at + 1), end: at + 5 };
}

/** `question`: the header and the question of the query. */
function packetOf(question: Buffer, type: number, answer: Answer | "truncated"): Buffer {
  if (answer === "malformed") return Buffer.concat([question.subarray(0, 2), Buffer.from([0x81, 0x80, 0, 1, 0, 9, 0])]);
  const records: Buffer[] = [];
  if (Array.isArray(answer) && type === 33) for (const srv of answer as readonly Srv[]) records.push(srvData(srv));
  if (typeof answer === "object" && "a" in answer && type === 1)
    for (const address of answer.a) records.push(Buffer.from(address.split(".").map(Number)));
  const head = Buffer.from(question);
  // QR, RD, RA; TC.
  head[2] = 0x81 | (answer === "truncated" ? 0x02 : 0);
  head[3] = 0x80 | (answer === "NXDOMAIN" ? 3 : answer === "SERVFAIL" ? 2 : 0);
  head.writeUInt16BE(records.length, 6);
  head.writeUInt32BE(0, 8);
  const all = records.map((data) => {
    // The name of the question, type, class IN, a TTL of 5 s.
    const fixed = Buffer.from([0xc0, 12, 0, type, 0, 1, 0, 0, 0, 5, 0, 0]);
    fixed.writeUInt16BE(data.length, 10);
    return Buffer.concat([fixed, data]);
  });
  return Buffer.concat([head, ...all]);
}

/** RFC 2782; "." is the root. */
function srvData({ name, port, priority = 0, weight = 1 }: Srv): Buffer {
  const numbers = Buffer.alloc(6);
  numbers.writeUInt16BE(priority, 0);
  numbers.writeUInt16BE(weight, 2);
  numbers.writeUInt16BE(port, 4);
  const labels = name.split(".").filter((label) => label !== "");
  const bytes = labels.flatMap((label) => [label.length, ...Buffer.from(label, "latin1")]);
  return Buffer.concat([numbers, Buffer.from([...bytes, 0])]);
}
