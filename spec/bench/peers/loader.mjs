/**
 * Sends requests over kept `node:net` or `node:tls` connections: as fast as possible, at a steady rate, or once on each
 * connection, which it then holds. Reads only responses with a Content-Length. The argument is a JSON object, see
 * `gauge.ts`; prints its figures as one line of JSON and holds until its standard input ends.
 */
import net from "node:net";
import tls from "node:tls";

const { port, secure, connections, seconds, rate, mode, requests } = JSON.parse(process.argv[2]);
const texts = requests.map((text) => Buffer.from(text, "latin1"));
const INLET = Buffer.allocUnsafeSlow(64 * 1024);
const latencies = [];
let failures = 0;
let turn = 0;
let going = true;

/** One connection: sends a request, and calls back when the response is complete. */
class Line {
  constructor() {
    this.head = "";
    this.left = -1;
    this.status = 0;
    this.done = null;
    this.opened = new Promise((resolve, reject) => {
      // One memory for all that is read: new memory each time would have the collector take the time that is measured.
      const onread = { buffer: INLET, callback: (bytes) => (this.read(INLET.subarray(0, bytes)), true) };
      const options = { port, host: "127.0.0.1", ...(secure ? {} : { onread }) };
      this.socket = secure
        ? tls.connect({ ...options, rejectUnauthorized: false }, resolve)
        : net.connect(options, resolve);
      this.socket.once("error", reject);
    });
    this.socket.setNoDelay(true);
    if (secure) this.socket.on("data", (piece) => this.read(piece));
    this.socket.on("close", () => this.end(false));
    this.socket.on("error", () => {});
  }

  ask(done) {
    this.done = done;
    this.socket.write(texts[turn++ % texts.length]);
  }

  read(piece) {
    let at = 0;
    if (this.left < 0) {
      this.head += piece.toString("latin1");
      const end = this.head.indexOf("\r\n\r\n");
      if (end < 0) return;
      const length = /\r\ncontent-length: *(\d+)/i.exec(this.head.slice(0, end + 2));
      if (length === null) throw new Error(`an answer without Content-Length: ${this.head.slice(0, end)}`);
      this.status = Number(this.head.slice(9, 12));
      at = piece.length - (this.head.length - end - 4);
      this.left = Number(length[1]);
      this.head = "";
    }
    this.left -= piece.length - at;
    if (this.left > 0) return;
    this.left = -1;
    this.end(this.status === 200);
  }

  end(fine) {
    const { done } = this;
    this.done = null;
    if (done !== null) done(fine);
  }
}

const lines = Array.from({ length: connections }, () => new Line());
await Promise.all(lines.map((line) => line.opened));

if (mode === "hold") {
  const fine = await Promise.all(lines.map((line) => new Promise((resolve) => line.ask(resolve))));
  console.log(JSON.stringify({ requests: connections, failures: fine.filter((each) => !each).length }));
  process.stdin.resume().on("end", () => process.exit());
} else {
  const began = performance.now();
  const result = mode === "paced" ? await paced() : await closed();
  const elapsed = (performance.now() - began) / 1000;
  latencies.sort((a, b) => a - b);
  const share = (part) => latencies[Math.min(latencies.length - 1, Math.floor(latencies.length * part))] ?? null;
  const figures = {
    requests: latencies.length,
    rps: latencies.length / elapsed,
    failures,
    p50: share(0.5),
    p99: share(0.99),
  };
  console.log(JSON.stringify({ ...figures, ...result }));
  process.exit();
}

/** Every connection sends its next request as soon as it has its response. */
async function closed() {
  setTimeout(() => (going = false), seconds * 1000);
  const loop = (line, ended) => {
    const began = performance.now();
    line.ask((fine) => {
      latencies.push(performance.now() - began);
      if (!fine) failures++;
      if (going && !line.socket.destroyed) loop(line, ended);
      else ended();
    });
  };
  await Promise.all(lines.map((line) => new Promise((ended) => loop(line, ended))));
  return {};
}

/**
 * Each request has a moment at which it is due. Its time runs from then, so that what waits for a connection because
 * others are slow counts as slow; what is due within the millisecond of a timer begins with it. How late the timers
 * were is told: then it was the loader that was slow.
 */
async function paced() {
  const free = [...lines];
  const waiting = [];
  let begun = 0;
  let underWay = 0;
  let latest = 0;
  const began = performance.now();
  let last = began;
  const late = [];
  const begin = (line, due) => {
    underWay++;
    line.ask((fine) => {
      latencies.push(performance.now() - due);
      if (!fine) failures++;
      underWay--;
      if (line.socket.destroyed) return;
      if (waiting.length > 0) begin(line, waiting.shift());
      else free.push(line);
    });
  };
  await new Promise((resolve) => {
    const timer = setInterval(() => {
      const now = performance.now();
      late.push(now - last);
      last = now;
      const due = Math.min(now - began, seconds * 1000) * (rate / 1000);
      for (; begun < due; begun++) {
        const line = free.pop();
        if (line === undefined) waiting.push(now);
        else begin(line, now);
      }
      latest = Math.max(latest, waiting.length);
      if (now - began >= seconds * 1000 && underWay === 0 && waiting.length === 0) {
        clearInterval(timer);
        resolve();
      }
      // A response that is missing long after the end will not come.
      if (now - began >= seconds * 1000 + 5_000) {
        failures += underWay + waiting.length;
        clearInterval(timer);
        resolve();
      }
    }, 1);
  });
  late.sort((a, b) => a - b);
  return { asked: begun, timerP99: late[Math.floor(late.length * 0.99)] ?? null, mostWaiting: latest };
}
