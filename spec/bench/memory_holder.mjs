/**
 * Opens connections to a gateway, sends one request on each, and holds them: idle, or, over HTTP/2, with streams that
 * wait. The argument is a JSON object, see `memory.ts`. Prints how many it holds, and ends with its standard input.
 */
import http2 from "node:http2";
import net from "node:net";
import tls from "node:tls";

const { kind, port, count, streams } = JSON.parse(process.argv[2]);
/** Few at a time, so that what is measured is not a burst. */
const AT_ONCE = 50;
const REQUEST = `GET /small HTTP/1.1\r\nHost: 127.0.0.1:${port}\r\nUser-Agent: bench\r\nAccept: */*\r\n\r\n`;

/** One connection that has been answered once. */
function overHttp1() {
  return new Promise((resolve, reject) => {
    const to = { host: "127.0.0.1", port };
    const socket = kind === "https" ? tls.connect({ ...to, rejectUnauthorized: false }) : net.connect(to);
    socket.once("error", reject).once("data", resolve);
    socket.write(REQUEST);
  });
}

/** One session that has been answered once, with `streams` more requests that wait. */
function overHttp2() {
  return new Promise((resolve, reject) => {
    const session = http2.connect(`https://127.0.0.1:${port}`, { rejectUnauthorized: false });
    session.once("error", reject);
    session
      .request({ ":path": "/small" })
      .resume()
      .once("end", () => {
        for (let i = 0; i < streams; i++) session.request({ ":path": "/never" }).on("error", () => {});
        resolve();
      })
      .once("error", reject);
  });
}

let open = 0;
const line = async () => {
  while (open < count) {
    open++;
    await (kind === "h2" ? overHttp2() : overHttp1());
  }
};
await Promise.all(Array.from({ length: AT_ONCE }, line));
console.log(JSON.stringify({ open: count }));
process.stdin.resume().on("end", () => process.exit());
