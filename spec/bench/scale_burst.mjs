/**
 * Sends a burst of requests to a gateway that is stopped (SIGSTOP), lets it go on, and sleeps: whatever the gateway
 * then does, it does with all processors to itself, since requests and replies stand in the memory of the sockets.
 * Arguments: PORT PID CONNECTIONS REQUESTS HEAD.
 * Prints JSON: nanoseconds of processor time of each thread, by the kernel's own clock, and how many replies of 200
 * there were.
 */
import { readdirSync, readFileSync } from "node:fs";
import net from "node:net";
import { setTimeout as pause } from "node:timers/promises";

const [port, pid, connections, requests] = process.argv.slice(2, 6).map(Number);
const burst = process.argv[6].repeat(requests);
const POLL_MS = 20;
/** So long after the last processor time the burst is over. */
const QUIET_POLLS = 5;

const sockets = await Promise.all(
  Array.from(
    { length: connections },
    () =>
      new Promise((resolve, reject) => {
        const socket = net.connect({ port, host: "127.0.0.1" });
        socket.once("error", reject);
        socket.once("data", () => resolve(socket.pause()));
        socket.write(process.argv[6]);
      }),
  ),
);
await pause(200);
process.kill(pid, "SIGSTOP");
for (const socket of sockets) socket.write(burst);
await pause(200);
const before = spent();
const began = performance.now();
process.kill(pid, "SIGCONT");
let wallMs = 0;
for (let [quiet, last] = [0, 0]; quiet < QUIET_POLLS;) {
  await pause(POLL_MS);
  const now = sum(spent());
  // A thread that waits spends a little, too.
  quiet = now - last < 1_000_000 ? quiet + 1 : 0;
  if (quiet === 0) wallMs = performance.now() - began;
  last = now;
}
const after = spent();
let replies = 0;
await Promise.all(
  sockets.map(async (socket) => {
    let text = "";
    socket
      .setEncoding("latin1")
      .on("data", (piece) => (text += piece))
      .resume();
    for (let i = 0; i < 100 && text.split("HTTP/1.1 ").length <= requests; i++) await pause(10);
    replies += text.split("HTTP/1.1 200 ").length - 1;
    socket.destroy();
  }),
);
console.log(
  JSON.stringify({
    replies,
    wallMs,
    threads: [...after].map(([id, ns]) => ns - (before.get(id) ?? 0)).sort((a, b) => b - a),
  }),
);

function spent() {
  return new Map(
    readdirSync(`/proc/${pid}/task`).map((id) => [
      id,
      Number(readFileSync(`/proc/${pid}/task/${id}/schedstat`, "utf8").split(" ")[0]),
    ]),
  );
}

function sum(all) {
  return [...all.values()].reduce((total, each) => total + each, 0);
}
