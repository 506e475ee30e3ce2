/**
 * Stands in place of variables and files where a configuration is read that somebody has sent: what they hold must not
 * decide what is told.
 */
import { createHash, randomBytes } from "node:crypto";
import { isLoopback } from "../base/url_destination.ts";
import { nodeAt, type JsonNode, type Path } from "./json.ts";
import { referencesIn } from "./references.ts";
import {
  INVALID,
  type CheckContext,
  type Invalid,
  type PlaceholderSource,
  type ReferenceUse,
  type Schema,
  type Sources,
} from "./schema_core.ts";

/**
 * Of one reading of a configuration. A text with references is known where the configuration in force has the same text
 * at the same place (by names, not by numbers). A known reference gets the same random text everywhere, as a URL one
 * with the scheme of its value, or its value where a random text has the wrong form. All others get a random text that
 * equals nothing. The same holds for the names of files.
 */
export class Placeholders implements PlaceholderSource {
  /** Texts with references and names of files that have been read, each with its place. */
  readonly seen = new Set<string>();
  readonly unknown: Path[] = [];
  /** The places of random texts that stand for a known reference. */
  readonly random: Path[] = [];
  /** Objects of the configuration that were made with any of these texts. */
  readonly unsure = new WeakSet<object>();
  readonly #values: ReadonlyMap<string, string>;
  /** Null: this is the configuration in force, and everything is known. */
  readonly #inForce: ReadonlySet<string> | null;
  readonly #salt: Buffer;

  /** `values`: of the references of the configuration in force that need their form, see `Sources.formed`. */
  constructor(values: ReadonlyMap<string, string>, inForce: Placeholders | null) {
    this.#values = values;
    this.#inForce = inForce?.seen ?? null;
    this.#salt = inForce === null ? randomBytes(32) : inForce.#salt;
  }

  alternatives(written: string, at: Path, use: ReferenceUse, sources: Sources, root: JsonNode | undefined): Sources[] {
    const by = (substitute: (reference: string) => string) => ({ ...sources, substitute });
    const given = (reference: string) => this.#values.get(reference)!;
    // Its tests must not tell whether a guess is right.
    const givenUnasked = (reference: string) => {
      this.unknown.push(at);
      return given(reference);
    };
    const alike = (reference: string) => {
      const text = urlLike(given(reference), this.#token(reference)) ?? this.#token(reference);
      // Warnings name the host of an address.
      if (URL.canParse(text))
        sources.resolved?.set(new URL(text).host, reference).set(new URL(text).hostname, reference);
      return text;
    };
    const isKnown = this.isKnown(written, at, root);
    const hasValues =
      isKnown && use !== "secret" && referencesIn(written).every((reference) => this.#values.has(reference));
    if (hasValues && use === "value") return [by(given)];
    (isKnown ? this.random : this.unknown).push(at);
    const token = isKnown ? (reference: string) => this.#token(reference) : () => randomBytes(32).toString("hex");
    const forms = FORMS.map((form) => by((reference) => form(token(reference))));
    return hasValues ? [...(use === "address" ? [by(alike)] : []), ...forms, by(givenUnasked)] : forms;
  }

  isKnown(written: string, at: Path, root: JsonNode | undefined): boolean {
    const place = JSON.stringify([written, ...placeOf(at, root)]);
    this.seen.add(place);
    return this.#inForce === null || this.#inForce.has(place);
  }

  isAt(at: Path): boolean {
    return [...this.unknown, ...this.random].some((each) => at.every((step, i) => each[i] === step));
  }

  checkInstance<T extends { readonly config: unknown }>(
    shape: Schema<T>,
    unknown: Schema<T>,
    node: JsonNode,
    at: Path,
    context: CheckContext,
  ): T | Invalid {
    const [replaced, wrong] = [this.#count, context.issues.length];
    const checked = shape.check(node, at, context);
    // A kind may also report what it finds wrong with a text in place of a value.
    const certain = context.issues.splice(wrong).filter((issue) => !this.isAt(issue.at));
    for (const issue of certain) context.issues.push(issue);
    const isOpen = checked === INVALID && certain.length === 0;
    if (isOpen) this.unknown.push([...at, "config"]);
    // Nobody can tell whether its configuration is valid: all but that is known of it.
    const instance = isOpen ? unknown.check(node, at, context) : checked;
    if (instance !== INVALID && this.#count > replaced && Object(instance.config) === instance.config)
      this.unsure.add(instance.config as object);
    return instance;
  }

  /** How many texts have been replaced, or could not be. */
  get #count(): number {
    return this.unknown.length + this.random.length;
  }

  #token(reference: string): string {
    return createHash("sha256").update(this.#salt).update(reference).digest("hex");
  }
}

/**
 * What texts have to look like, in the order in which it is tried. The first has the length and the letters of a
 * SHA-256.
 */
const FORMS: readonly ((random: string) => string)[] = [
  (random) => random,
  (random) => `x${random.slice(0, 20)}.invalid`,
  (random) => `https://x${random.slice(0, 20)}.invalid/`,
  (random) => `redis://x${random.slice(0, 20)}.invalid`,
  (random) => `/${random}`,
  (random) => `DNS:x${random.slice(0, 20)}.invalid`,
  // Of a network that nobody has (RFC 5737).
  (random) => `192.0.2.${1 + (parseInt(random.slice(0, 2), 16) % 254)}`,
  (random) => String(portOf(random)),
];

/**
 * A random URL that is judged as this one is: by its scheme, its credentials, and whether its host is this machine.
 * Null: `value` is no URL.
 */
function urlLike(value: string, random: string): string | null {
  if (!URL.canParse(value)) return null;
  const { protocol, hostname, password } = new URL(value);
  if (hostname === "") return null;
  const host = isLoopback(hostname) ? `${hostname}:${portOf(random)}` : `x${random.slice(0, 20)}.invalid`;
  const path = protocol.startsWith("http") ? `/${random}` : "";
  return `${protocol}//${password === "" ? "" : `:${random}@`}${host}${path}`;
}

function portOf(random: string): number {
  return 1 + (parseInt(random.slice(0, 4), 16) % 65_535);
}

/** Items of lists by what names them; a number names nothing. */
function placeOf(at: Path, root: JsonNode | undefined): (string | readonly string[])[] {
  return at.flatMap((step, i): (string | readonly string[])[] => {
    if (typeof step === "string") return [step];
    const item = root === undefined ? undefined : nodeAt(root, at.slice(0, i + 1));
    if (item?.kind !== "object") return [];
    const text = (name: string) => {
      const value = item.members.get(name);
      return value?.kind === "string" || value?.kind === "number" ? [`${name}=${value.value}`] : [];
    };
    const named = ["name", "id", "username"].flatMap(text);
    return [named.length > 0 ? named : ["path", "host", "port", "url"].flatMap(text)];
  });
}
