import { appendFileSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { emptyFolder } from "./process.ts";

const ROOT = new URL("../../", import.meta.url);

/** Writes the address of every module to a file before it is loaded, in every thread. */
export function recorder() {
  const file = join(emptyFolder(), "modules.txt");
  appendFileSync(file, "");
  const hook = `import { appendFileSync } from "node:fs";
export const load = (url, context, next) => \
(appendFileSync(${JSON.stringify(file)}, url + "\\n"), next(url, context));`;
  const dataUrl = (code: string) => `data:text/javascript,${encodeURIComponent(code)}`;
  const register = dataUrl(`import { register } from "node:module"; register(${JSON.stringify(dataUrl(hook))});`);
  /** Below `dist/`, without `.js`: "lib/plugins/jwt". */
  const modules = () => {
    const dist = new URL("dist/", ROOT).href;
    return readFileSync(file, "utf8")
      .split("\n")
      .filter((url) => url.startsWith(dist))
      .map((url) => url.slice(dist.length).replace(/\.js$/, ""));
  };
  return { environment: { NODE_OPTIONS: `--import ${register}` }, modules };
}
