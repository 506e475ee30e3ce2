/**
 * Reads random requests with our own HTTP/1 codec and with Node's; fails when ours accepts what Node's refuses, or
 * reads it differently.
 */
import { fuzz } from "../support/http1_fuzz.ts";

const CASES = 5_000_000;
const BATCH = 100_000;

export async function http1Fuzz([
  cases = String(CASES),
  seed = String(Math.floor(Math.random() * 2 ** 31)),
]: readonly string[]): Promise<boolean> {
  const count = Number(cases);
  if (!Number.isInteger(count) || count < 1 || !Number.isInteger(Number(seed))) {
    console.log("CASES is a number of at least 1, SEED a whole number");
    return false;
  }
  console.log(`${count} cases from seed ${seed}, Node ${process.version} with llhttp ${process.versions.llhttp}`);
  const sum = { cases: 0, requests: 0, same: 0, bothRefuse: 0 };
  const stricter = new Map<string, number>();
  const begun = performance.now();
  for (let batch = 0; sum.cases < count; batch++) {
    const tally = fuzz(Math.min(BATCH, count - sum.cases), Number(seed) + batch);
    for (const key of Object.keys(sum) as (keyof typeof sum)[]) sum[key] += tally[key];
    for (const [why, times] of tally.stricter) stricter.set(why, (stricter.get(why) ?? 0) + times);
    for (const defect of tally.defects) console.log(defect);
    if (tally.defects.length > 0) return false;
  }
  const perSecond = Math.round((sum.cases / (performance.now() - begun)) * 1000);
  console.log(`${sum.cases} cases, ${perSecond} a second; ${sum.requests} requests accepted`);
  console.log(`read alike to the end: ${sum.same}; refused by both: ${sum.bothRefuse}; refused by ours alone:`);
  for (const [why, times] of [...stricter].sort(([, a], [, b]) => b - a))
    console.log(`${String(times).padStart(10)}  ${why}`);
  return true;
}
