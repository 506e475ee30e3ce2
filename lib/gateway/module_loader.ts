/**
 * Evaluates the plugin modules that a configuration names: the only place where foreign code comes in.
 *
 * The bytes that were compared with the digest (in `config/`) are the bytes that run; the file is not read again. So a
 * module is one file: it can import `node:` modules, nothing by a relative or bare name, and a URL only by a specifier
 * that it computes. No digest covers code that it fetches that way or by `node:module`, `node:vm` and the like: a
 * module is trusted with all that the process may do.
 */
import { pathToFileURL } from "node:url";
import { entry } from "../base/event_loop.ts";
import { NOT_LOADED } from "../config/feature_fields.ts";
import type { PluginModule } from "../config/plugin_modules.ts";
import { kit } from "../plugins/kit.ts";
import { kindProblem } from "../plugins/foreign_kind.ts";
import type { AnyPlugin } from "../plugins/plugin.ts";
import { placeIn } from "./module_errors.ts";

/**
 * The modules that were loaded for one gateway, by path and digest. A loaded module stays for the life of the process:
 * node cannot unload it.
 */
export class LoadedModules {
  /** The kinds of each, or why it could not be used when it was last tried. */
  readonly #kinds = new Map<string, readonly AnyPlugin[] | string>();
  #tries = 0;

  /** Those that are not loaded yet, one after the other. */
  async load(modules: readonly PluginModule[]): Promise<void> {
    for (const module of modules) {
      if (Array.isArray(this.kindsOf(module))) continue;
      this.#kinds.set(keyOf(module), await evaluateModule(module, `${module.sha256.slice(0, 12)}-${this.#tries++}`));
    }
  }

  kindsOf(module: PluginModule): readonly AnyPlugin[] | string {
    return this.#kinds.get(keyOf(module)) ?? NOT_LOADED;
  }
}

function keyOf({ path, sha256 }: PluginModule): string {
  return `${sha256} ${path.path}`;
}

/** The kinds of a module, or why there are none. `label`: in the URL of its frames. */
async function evaluateModule(module: PluginModule, label: string): Promise<readonly AnyPlugin[] | string> {
  try {
    return await inTime(kindsFrom(module, label));
  } catch (error) {
    return messageOf(error) + (error instanceof Error ? placeIn(error, String(module.path.content), label) : "");
  }
}

async function kindsFrom({ path }: PluginModule, label: string): Promise<readonly AnyPlugin[]> {
  const { default: exported } = await evaluated(path.path, path.content, label);
  const made: unknown =
    typeof exported === "function" ? await (exported as (given: typeof kit) => unknown)(kit) : exported;
  const kinds: readonly unknown[] = Array.isArray(made) ? made : [made];
  if (made === undefined || kinds.length === 0) throw new Error(USAGE);
  for (const kind of kinds) {
    const problem = kindProblem(kind);
    if (problem !== undefined) throw new Error(`${problem}. ${USAGE}`);
  }
  const names = (kinds as readonly AnyPlugin[]).map(({ name }) => name);
  const twice = names.find((name, i) => names.indexOf(name) !== i);
  if (twice !== undefined) throw new Error(`it brings the plugin kind "${twice}" twice`);
  return kinds as readonly AnyPlugin[];
}

const USAGE =
  "Its default export has to be a plugin, a list of plugins, or a function that makes them: " +
  "export default (kit) => kit.definePlugin({ … })";

/**
 * The reason to refuse a module that imports by a URL, which may lead to a file; else undefined. Checks every string
 * literal after `import`, `import(` and `from`, anywhere in the code: an import statement can have nothing else there.
 */
function uncoveredImport(code: string): string | undefined {
  for (const [, , quoted = "", templated = ""] of code.matchAll(SPECIFIERS)) {
    // A URL is read without tabs and line ends, and without spaces in front.
    const specifier = (quoted || templated).replace(/[\t\n\r]/g, "").replace(/^[\0- ]+/, "");
    const scheme = /^[a-z][a-z0-9+.-]*:/i.exec(specifier)?.[0].toLowerCase();
    if (specifier.includes("\\")) return `it imports by a name that is written with escapes. ${ONE_FILE}`;
    if (scheme !== undefined && scheme !== "node:")
      return `it imports by a URL that begins with ${scheme}, and its digest does not cover that. ${ONE_FILE}`;
  }
  return undefined;
}

/** Between keyword and text there may be space, comments and, after `import` only, parentheses. */
const GAP = String.raw`\s|/\*(?:[^*]|\*(?!/))*\*/|//.*[\n\r\u2028\u2029]`;
const TEXT = String.raw`(["'])((?:\\[^]|(?!\1)[^\\\n\r])*)\1|${"`"}((?:\\[^]|[^\\${"`"}])*)${"`"}`;
/**
 * The text is matched by look-ahead only, so that a false import, as in a comment, does not hide a real one after it.
 */
const SPECIFIERS = new RegExp(String.raw`\b(?:import|from(?!(?:${GAP})*\())(?=(?:\(|${GAP})*(?:${TEXT}))`, "g");

const ONE_FILE = "A module is one file, which may import node: modules only";

/** Each try gets a URL of its own: node caches failed modules for ever. */
async function evaluated(path: string, content: Buffer, label: string): Promise<{ readonly default?: unknown }> {
  // With the comment, stack traces name the file instead of the whole data: URL.
  const uncovered = uncoveredImport(content.toString("utf8"));
  if (uncovered !== undefined) throw new Error(uncovered);
  const code = `${content.toString("utf8")}\n//# sourceURL=${pathToFileURL(path).href}?${label}\n`;
  const url = `data:text/javascript;base64,${Buffer.from(code).toString("base64")}`;
  try {
    return (await import(/* @vite-ignore */ url)) as { readonly default?: unknown };
  } catch (error) {
    if (
      (error as NodeJS.ErrnoException | null)?.code === "ERR_UNSUPPORTED_RESOLVE_REQUEST" ||
      /Failed to resolve module specifier/.test(messageOf(error))
    ) {
      throw new Error(`it imports another file or package. ${ONE_FILE}`, { cause: error });
    }
    throw error;
  }
}

const MAX_MS = 10_000;

/** A module that never finishes loading must not keep the gateway from starting. */
async function inTime<T>(done: Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(
      entry("the loading of a module", () =>
        reject(new Error(`it takes longer than ${MAX_MS / 1000} seconds to load`)),
      ),
      MAX_MS,
    );
  });
  try {
    return await Promise.race([done, late]);
  } finally {
    clearTimeout(timer);
  }
}

/** One line, without the URL of the module, which holds all of its text. */
function messageOf(error: unknown): string {
  const text =
    error instanceof Error
      ? error.name === "Error"
        ? error.message
        : `${error.name}: ${error.message}`
      : `it threw ${String(error)}`;
  return text.split("\n", 1)[0]!.replace(/data:text\/javascript\S*/g, "the module");
}
