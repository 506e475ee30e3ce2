/** The first message of a TLS handshake, as clients send it and as nobody should. */
import { once } from "node:events";
import net, { type AddressInfo } from "node:net";
import tls, { type ConnectionOptions } from "node:tls";
import { describe, expect, it, onTestFinished, vi } from "vitest";
import { clientHelloReader, type HelloReading } from "../../lib/server/client_hello.ts";

/** What Node's client sends first. */
async function helloOf(options: ConnectionOptions): Promise<Buffer> {
  const server = net.createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const client = tls.connect({ port: (server.address() as AddressInfo).port, host: "127.0.0.1", ...options });
  client.on("error", () => {});
  onTestFinished(() => void server.close());
  const [socket] = (await once(server, "connection")) as [net.Socket];
  const [bytes] = (await once(socket, "data")) as [Buffer];
  client.destroy();
  socket.destroy();
  return bytes;
}

/** The same message in records of so many bytes. */
function inRecords(bytes: Buffer, length: number): Buffer {
  const message = bytes.subarray(5);
  const records: Buffer[] = [];
  for (let at = 0; at < message.length; at += length) {
    const fragment = message.subarray(at, at + length);
    records.push(Buffer.of(22, 3, 1, fragment.length >> 8, fragment.length & 255), fragment);
  }
  return Buffer.concat(records);
}

const readClientHello: HelloReading = (bytes) => clientHelloReader()(bytes);

describe("clientHelloReader", () => {
  it("reads name and protocols, and null for what the client does not send", async () => {
    const named = { servername: "shop.example", ALPNProtocols: ["acme-tls/1"] };
    expect(readClientHello(await helloOf(named))).toEqual({ servername: "shop.example", protocols: ["acme-tls/1"] });
    const several = { servername: "a.example", ALPNProtocols: ["h2", "http/1.1"], maxVersion: "TLSv1.2" as const };
    expect(readClientHello(await helloOf(several))).toEqual({ servername: "a.example", protocols: ["h2", "http/1.1"] });
    expect(readClientHello(await helloOf({}))).toEqual({ servername: null, protocols: null });
  });

  it("waits for each byte of it, in one record or in many", async () => {
    const hello = await helloOf({ servername: "shop.example", ALPNProtocols: ["h2"] });
    for (const bytes of [hello, inRecords(hello, 100), inRecords(hello, 1)]) {
      for (const length of [0, 1, 4, 5, 6, 9, 50, bytes.length - 1])
        expect([length, readClientHello(bytes.subarray(0, length))]).toEqual([length, "part"]);
      const read = { servername: "shop.example", protocols: ["h2"] };
      expect(readClientHello(bytes)).toEqual(read);
      expect(readClientHello(Buffer.concat([bytes, Buffer.from("more")]))).toEqual(read);
    }
  });

  it("goes on where it ended when more has come", async () => {
    const protocols = ["h2", ...Array.from({ length: 100 }, (_none, i) => `protocol-${i}`)];
    const hello = await helloOf({ servername: "shop.example", ALPNProtocols: protocols });
    for (const recordBytes of [1, 3, 1_000]) {
      const bytes = inRecords(hello, recordBytes);
      const read = clientHelloReader();
      const heads = vi.spyOn(Buffer.prototype, "readUInt16BE");
      onTestFinished(() => heads.mockRestore());
      let chunks = 0;
      for (let length = 8; length < bytes.length; length += 8, chunks++)
        expect(read(bytes.subarray(0, length))).toBe("part");
      // Each record's, once where it is there as a whole and once for each chunk that has a part of it.
      const records = Math.ceil((hello.length - 5) / recordBytes);
      expect(heads.mock.calls.length).toBeLessThanOrEqual(records + chunks);
      heads.mockRestore();
      expect(read(bytes)).toEqual({ servername: "shop.example", protocols });
    }
  });

  it("takes nothing else, and throws for no bytes", async () => {
    const hello = await helloOf({ servername: "shop.example", ALPNProtocols: ["h2"] });
    expect(readClientHello(Buffer.from("GET / HTTP/1.1"))).toBe("other");
    expect(readClientHello(Buffer.of(22, 3, 1, 0, 0, 22, 3, 1))).toBe("other");
    expect(readClientHello(Buffer.of(22, 3, 1, 0, 4, 2, 0, 0, 0))).toBe("other");
    expect(readClientHello(Buffer.of(22, 3, 1, 0, 4, 1, 255, 255, 255))).toBe("other");
    expect(readClientHello(Buffer.of(22, 3, 1, 0, 4, 1, 0, 0x40, 0))).toBe("other");
    // Records of one byte whose message never ends.
    const endless = Buffer.from("1603010001", "hex");
    const parts = Array.from({ length: 3_000 }, (_none, i) => Buffer.concat([endless, Buffer.of(i === 0 ? 1 : 0x30)]));
    expect(readClientHello(Buffer.concat(parts))).toBe("other");
    expect(readClientHello(Buffer.concat([...parts.slice(0, 2), ...parts.slice(0, 1)]))).toBe("part");
    // Each byte of it in turn is another one: whatever comes of it, it is read or not.
    for (let at = 0; at < hello.length; at++)
      for (const value of [0, 255]) {
        const bytes = Buffer.from(hello);
        bytes[at] = value;
        expect(["object", "string"]).toContain(typeof readClientHello(bytes));
      }
  });
});
