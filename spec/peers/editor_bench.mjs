/**
 * Measures a keystroke in the editor of the management UI: `node spec/peers/editor_bench.mjs [lines]` starts the built
 * gateway with a configuration of at least that many lines, types in its middle, and prints the times from the key to
 * the frame that shows it. Not a spec: nothing else runs it.
 */
import { openManager } from "./bench_page.mjs";

const LINES = Number(process.argv[2] ?? 5000);

const limit = { name: "rate_limit", config: { limit_min: 5 } };
const routes = Array.from({ length: Math.ceil(LINES / 12) }, (_, i) => ({
  name: `route-${i}`,
  path: `/items/${i}`,
  plugins: [limit],
}));
const text = JSON.stringify(
  { services: [{ name: "shop", base_path: "/shop", upstreams: [{ host: "127.0.0.1", port: 9 }], routes }] },
  null,
  2,
);
const lines = text.split("\n");
const line = lines.findIndex((each, i) => i > lines.length / 2 && each.includes('"limit_min": 5'));
const hash = `#/edit?line=${line + 1}&column=${lines[line].length + 1}`;
const { page, busyMs, close } = await openManager(text, { hash });
await page.locator(".editor__row[data-current]", { hasText: "limit_min" }).waitFor();
await page.evaluate(`(() => {
  window.times = [];
  // The message is answered once the frame has been drawn.
  document.querySelector("textarea").addEventListener("keydown", ({ timeStamp }) => requestAnimationFrame(() => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => times.push(performance.now() - timeStamp);
    port2.postMessage(null);
  }));
})()`);
for (const [name, keys] of [
  ["a digit", "123456789012345678901234567890123456789012345678901234567890"],
  ["a quote", '"x'.repeat(20)],
  ["Enter", "\n".repeat(20)],
]) {
  await page.evaluate("times.length = 0");
  const before = await busyMs();
  await page.keyboard.type(keys, { delay: 60 });
  const busy = ((await busyMs()) - before) / keys.length;
  const times = (await page.evaluate("times")).sort((a, b) => a - b);
  const at = (share) => times[Math.min(Math.floor(times.length * share), times.length - 1)].toFixed(1);
  console.log(
    `${name.padEnd(8)} median ${at(0.5)} ms, 95 % ${at(0.95)} ms, worst ${at(1)} ms, ` +
      `${busy.toFixed(1)} ms of processor a key, of ${times.length} (${lines.length} lines)`,
  );
}
await close();
