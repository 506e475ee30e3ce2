/**
 * Servers and clients to try the cookbook with, without packages. Servers listen on 127.0.0.1:
 *   node examples/peers.mjs tokens 9000         an identity provider: keys at /jwks.json, a token at /token (?aud=… changes a claim)
 *   node examples/peers.mjs websocket 3000      sends what was requested, then each text back
 *   node examples/peers.mjs grpc 50051          answers each call with "Hello, NAME"
 *   node examples/peers.mjs say URL TEXT        opens a WebSocket (http://…), sends the text and prints what comes
 *   node examples/peers.mjs call URL NAME       calls a gRPC method (http://…/package.Service/Method) and prints reply and status
 */
import { createHash, generateKeyPairSync, randomBytes, sign } from "node:crypto";
import http from "node:http";
import http2 from "node:http2";

const acceptOf = (key) => createHash("sha1").update(`${key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`).digest("base64");

/** A frame with a short text (RFC 6455 §5.2). Clients mask theirs; a mask of zeros leaves the text as it is. */
function frameOf(text, isClient) {
  const bytes = Buffer.from(text);
  return Buffer.concat([Buffer.from([0x81, bytes.length + (isClient ? 0x80 : 0)]), Buffer.alloc(isClient ? 4 : 0), bytes]);
}

/** Calls `take` with the text of each frame; a frame that closes (or the other side's end) ends the connection. */
function readFrames(socket, take) {
  let rest = Buffer.alloc(0);
  socket.on("error", () => socket.destroy()).on("end", () => socket.end());
  socket.on("data", (chunk) => {
    rest = Buffer.concat([rest, chunk]);
    while (rest.length >= 2) {
      const [size, mask] = [rest[1] & 0x7f, rest[1] & 0x80 ? 4 : 0];
      if (rest.length < 2 + mask + size) return;
      const bytes = rest.subarray(2 + mask, 2 + mask + size).map((byte, i) => (mask === 0 ? byte : byte ^ rest[2 + (i % 4)]));
      if ((rest[0] & 0x0f) === 8) return void socket.end();
      take(Buffer.from(bytes).toString());
      rest = rest.subarray(2 + mask + size);
    }
  });
}

/** A gRPC message whose first field is a short string: five bytes of length, then protobuf. */
const messageOf = (text) => Buffer.concat([Buffer.from([0, 0, 0, 0, Buffer.byteLength(text) + 2, 0x0a, Buffer.byteLength(text)]), Buffer.from(text)]);
const textOf = (message) => message.subarray(7).toString();

const servers = {
  tokens() {
    const { publicKey, privateKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });
    const keys = { keys: [{ ...publicKey.export({ format: "jwk" }), kid: "1", use: "sig", alg: "RS256" }] };
    return http.createServer((request, response) => {
      const { pathname, searchParams } = new URL(request.url, "http://localhost");
      if (pathname === "/jwks.json") return void response.end(JSON.stringify(keys));
      if (pathname !== "/token") return void response.writeHead(404).end();
      const { exp = Date.now() / 1000 + 300, ...others } = Object.fromEntries(searchParams);
      const claims = { iss: "https://login.example.com/", aud: "orders", sub: "ada", exp: Math.floor(exp), ...others };
      const signed = [{ alg: "RS256", kid: "1" }, claims].map((part) => Buffer.from(JSON.stringify(part)).toString("base64url")).join(".");
      response.end(`${signed}.${sign("sha256", Buffer.from(signed), privateKey).toString("base64url")}`);
    });
  },
  websocket: () =>
    http.createServer().on("upgrade", (request, socket) => {
      const accept = acceptOf(request.headers["sec-websocket-key"]);
      socket.write(`HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: ${accept}\r\n\r\n`);
      socket.write(frameOf(`upstream ${socket.localPort} got ${request.url}`));
      readFrames(socket, (text) => socket.write(frameOf(text)));
    }),
  grpc: () =>
    http2.createServer().on("stream", (stream) => {
      const chunks = [];
      stream.on("wantTrailers", () => stream.sendTrailers({ "grpc-status": "0" }));
      stream.on("data", (chunk) => chunks.push(chunk)).on("end", () => {
        stream.respond({ ":status": 200, "content-type": "application/grpc" }, { waitForTrailers: true });
        stream.end(messageOf(`Hello, ${textOf(Buffer.concat(chunks))}`));
      });
    }),
};

const clients = {
  say(url, text) {
    const key = randomBytes(16).toString("base64");
    const headers = { Connection: "Upgrade", Upgrade: "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": key };
    const request = http.get(url, { headers }, (response) => {
      console.log(`refused with ${response.statusCode}`);
      response.pipe(process.stdout);
    });
    request.on("upgrade", (_response, socket, head) => {
      socket.unshift(head);
      readFrames(socket, (got) => {
        console.log(got);
        if (got === text) socket.end(Buffer.from([0x88, 0x80, 0, 0, 0, 0]));
      });
      socket.write(frameOf(text, true));
    });
  },
  call(url, name) {
    const { origin, pathname } = new URL(url);
    const session = http2.connect(origin);
    const stream = session.request({ ":method": "POST", ":path": pathname, "content-type": "application/grpc", te: "trailers" });
    const [chunks, all] = [[], {}];
    stream.on("data", (chunk) => chunks.push(chunk));
    // An error may have its status in the head of the reply, without trailers.
    for (const event of ["response", "trailers"]) stream.on(event, (headers) => Object.assign(all, headers));
    stream.on("close", () => {
      if (chunks.length > 0) console.log(textOf(Buffer.concat(chunks)));
      console.log(`grpc-status: ${all["grpc-status"]}${all["grpc-message"] === undefined ? "" : `, ${all["grpc-message"]}`}`);
      session.close();
    });
    stream.end(messageOf(name));
  },
};

const [, , kind, ...given] = process.argv;
if (kind in servers) {
  const server = servers[kind]();
  server.listen(Number(given[0]), "127.0.0.1", () => console.log(`${kind} listens on 127.0.0.1:${server.address().port}`));
} else if (kind in clients && given.length === 2) {
  clients[kind](...given);
} else {
  console.error("Usage: node examples/peers.mjs tokens|websocket|grpc PORT, or say|call URL TEXT");
  process.exitCode = 2;
}
