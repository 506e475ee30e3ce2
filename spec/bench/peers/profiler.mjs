/**
 * Loaded before the gateway's program (`node --import`): takes a CPU profile from the line "begin" to the line "end
 * FILE" on standard input, writes it there and prints "written".
 */
import { writeFileSync } from "node:fs";
import { Session } from "node:inspector/promises";
import { createInterface } from "node:readline";

const INTERVAL_MICROS = 200;

const session = new Session();
session.connect();
createInterface({ input: process.stdin }).on("line", (line) => void obey(line));

async function obey(line) {
  if (line === "begin") {
    await session.post("Profiler.enable");
    await session.post("Profiler.setSamplingInterval", { interval: INTERVAL_MICROS });
    await session.post("Profiler.start");
    process.stdout.write("begun\n");
    return;
  }
  const { profile } = await session.post("Profiler.stop");
  writeFileSync(line.slice("end ".length), JSON.stringify(profile));
  process.stdout.write("written\n");
}
