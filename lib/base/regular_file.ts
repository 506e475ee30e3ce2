/**
 * Reads a file at once, and never waits: a FIFO or a device in its place, whose reading may never end, is refused.
 */
import { closeSync, constants, fstatSync, openSync, readFileSync } from "node:fs";

/** Throws the system's error, or one that says what is there instead of a file. */
export function readRegularFile(path: string): Buffer {
  // The opening of a FIFO would wait for a writer.
  const fd = openSync(path, constants.O_RDONLY | (constants.O_NONBLOCK ?? 0));
  try {
    const found = fstatSync(fd);
    // The reading of a directory fails by itself.
    if (!found.isFile() && !found.isDirectory()) throw new Error(`it is ${found.isFIFO() ? "a FIFO" : found.isSocket() ? "a socket" : "a device"}, not a file`);
    return readFileSync(fd);
  } finally {
    closeSync(fd);
  }
}
