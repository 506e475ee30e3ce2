/**
 * The backend that streams: answers every GET with chunks, one every two milliseconds, each in a write of its own.
 * Arguments: PORT PIECES PIECE_BYTES. The pace is the same for all proxies, and one that none is busy with: chunks that
 * arrived while a slow proxy was busy would be read and written together, and cost it less than a fast one.
 */
import net from "node:net";

const EVERY_MS = 2;
const [port, pieces, bytes] = process.argv.slice(2).map(Number);
const HEAD = Buffer.from("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n");
const PIECE = Buffer.from(`${bytes.toString(16)}\r\n${"x".repeat(bytes)}\r\n`);
const LAST = Buffer.from("0\r\n\r\n");
/** Sockets that are being answered, and how many pieces each has yet to get. */
const left = new Map();

const server = net.createServer({ noDelay: true }, (socket) => {
  let head = "";
  socket.on("data", (piece) => {
    head += piece.toString("latin1");
    if (!head.endsWith("\r\n\r\n")) return;
    head = "";
    socket.write(HEAD);
    left.set(socket, pieces);
  });
  socket.on("error", () => {});
  socket.on("close", () => left.delete(socket));
});
server.listen(port, "127.0.0.1", 4096);

setInterval(() => {
  for (const [socket, count] of left) {
    socket.write(count > 0 ? PIECE : LAST);
    if (count > 0) left.set(socket, count - 1);
    else left.delete(socket);
  }
}, EVERY_MS);
