/**
 * `edge-gateway publish`: writes a configuration to etcd, where gateways get it, once it is valid, its tests pass, and
 * it is known what it changes.
 */
import { hash } from "node:crypto";
import { view } from "../admin/views.ts";
import { systemClock } from "../base/clock.ts";
import { signatureOf } from "../base/signature.ts";
import { parseJson } from "../config/json_parser.ts";
import { pinnedFilesOf } from "../config/pinned_file.ts";
import * as references from "../config/references.ts";
import { parsed } from "../config/source.ts";
import { signedBy } from "../config/signed.ts";
import { givenText } from "../config/text_source.ts";
import { timeOf } from "../config/validity_fields.ts";
import { ConfigError } from "../gateway/config_error.ts";
import type { Candidate } from "../proof/candidate.ts";
import { configWarnings } from "../proof/config_warnings.ts";
import { placedWarnings } from "../proof/placed_warnings.ts";
import { routeDiff } from "../proof/route_diff.ts";
import { EtcdClient } from "../source/etcd_client.ts";
import { EtcdFailure } from "../source/etcd_failure.ts";
import { type ConfigState } from "../source/etcd_keys.ts";
import { etcdOptions } from "../source/etcd_options.ts";
import { readPublished, writePublished, type Published } from "../source/publication.ts";
import type { Arguments, RunCommand } from "./arguments.ts";
import { configKeyFile, openCandidate } from "./config_file.ts";
import { diffLines } from "./diff.ts";
import { etcdSettings } from "./etcd_settings.ts";
import { Failure } from "./failure.ts";
import { readNamedFile } from "./named_files.ts";
import { paintFor, printable } from "./terminal.ts";
import { reportText } from "./test.ts";
import { warningLines } from "./warning_text.ts";

/**
 * 0: written, or there already. 1: a test fails, somebody else has written meanwhile, or etcd cannot be asked. 2: the
 * command line, the settings or the configuration are wrong.
 */
export const publish: RunCommand = async (given) => {
  const [file, url] = given.operands;
  if (file === undefined || url === undefined)
    throw new Failure("publish needs a configuration and a key: edge-gateway publish FILE etcd://HOST:2379/KEY", 2);
  const expected = expectationOf(given);
  const settings = etcdSettings(url, given);
  const { path: key, name } = settings.url;
  const keyFile = configKeyFile(given);
  const published = signed(file, given, keyFile);
  const candidate = await opened(file, published, keyFile);
  const client = new EtcdClient(etcdOptions(settings, systemClock));
  try {
    const tests = await proved(candidate, file);
    sayIfLarge(file, published);
    const there = await readPublished(client, key);
    refuseOther(there, expected, name);
    refuseUnsigned(there, published, name);
    refuseLower(there, candidate.configuration.snapshot.config.serial, name);
    const diff = await compared(there, candidate, { name, keyFile });
    const isThere = isSame(there, published);
    const isWritten = !isThere && given.flags["dry-run"] === undefined;
    const revision = isWritten ? await written({ client, key, name }, published, there) : null;
    const before = isMissing(there) ? null : { revision: revisionName(there), digest: digestOf(there.text.value!) };
    const digest = digestOf(published.text);
    if (given.flags.json !== undefined) {
      const view = { key: name, written: isWritten, before, revision, digest, tests, diff: diff.view };
      process.stdout.write(`${JSON.stringify(view, null, 2)}\n`);
      return 0;
    }
    let end = `${name} would get the digest ${digest}; nothing was written`;
    if (isThere) end = `${name} has this text already: ${revisionName(there)}, digest ${digest}`;
    if (isWritten) end = `${name} is written: ${revision}, digest ${digest}`;
    process.stdout.write(printable([...diff.lines, end]));
    return 0;
  } catch (error) {
    throw error instanceof EtcdFailure ? new Failure(inWords(error, name), 1) : error;
  } finally {
    client.close();
    await candidate.close();
  }
};

/** Warns, and runs the tests. Throws a `Failure` for a test that fails, and for a configuration that has ended. */
async function proved(candidate: Candidate, file: string) {
  const { configuration } = candidate;
  refuseEnded(file, configuration.snapshot.config.expiresAt);
  warn(candidate, file);
  const report = await (await configuration.features.onDemand.tests()).testInForce(configuration);
  const { passed, failed } = report;
  if (failed === 0) return { passed, failed };
  process.stderr.write(reportText(report, file, paintFor(process.stderr)));
  throw new Failure(`a test of ${file} fails; nothing was written`, 1);
}

/** "rev:42" */
async function written(
  { client, key, name }: { readonly client: EtcdClient; readonly key: string; readonly name: string },
  published: Published,
  there: ConfigState,
): Promise<string> {
  const outcome = await writePublished(client, key, published, there);
  if ("other" in outcome)
    throw new Failure(`${name} was written meanwhile: ${described(outcome.other)}; nothing was written`, 1);
  return `rev:${outcome.revision}`;
}

function refuseUnsigned(there: ConfigState, published: Published, name: string): void {
  if (there.signature.modRevision > 0 && published.signature === null)
    throw new Failure(`${name} is signed: sign the new text too, with --sign private.pem`, 2);
}

/** What must be there: a revision of the key, 0: no key, or a digest. Null: what was read for the diff. */
type Expectation = { readonly revision: number } | { readonly digest: string } | null;

function expectationOf({ flags }: Arguments): Expectation {
  if (flags.expect === undefined) return null;
  const text = String(flags.expect);
  const [, revision] = /^rev:(\d{1,15})$/.exec(text) ?? [];
  if (revision !== undefined) return { revision: Number(revision) };
  if (text === "0") return { revision: 0 };
  if (/^[0-9a-f]{12,64}$/i.test(text)) return { digest: text.toLowerCase() };
  throw new Failure(
    `--expect: expected rev:N, a digest of 12 hexadecimal digits or more, or 0 for no key, ` +
      `found ${JSON.stringify(text)}`,
    2,
  );
}

function refuseOther(there: ConfigState, expected: Expectation, name: string): void {
  if (expected === null) return;
  const isExpected =
    "revision" in expected
      ? there.text.modRevision === expected.revision
      : !isMissing(there) && hash("sha256", there.text.value!).startsWith(expected.digest);
  if (isExpected) return;
  throw new Failure(`${name} is not what --expect names: ${described(there)}; nothing was written`, 1);
}

function described(there: ConfigState): string {
  return isMissing(there) ? "it has no text" : `it has ${revisionName(there)}, digest ${digestOf(there.text.value!)}`;
}

function revisionName({ text }: ConfigState): string {
  return `rev:${text.modRevision}`;
}

function isMissing({ text }: ConfigState): boolean {
  return text.modRevision === 0;
}

function isSame(there: ConfigState, { text, signature }: Published): boolean {
  if (isMissing(there) || !there.text.value!.equals(text)) return false;
  return signature === null || there.signature.value!.toString() === signature;
}

/** As `Gateway.digest`. */
function digestOf(text: Buffer): string {
  return hash("sha256", text).slice(0, 12);
}

/** Throws a `Failure`. */
function signed(file: string, { flags }: Arguments, keyFile: string | undefined): Published {
  const text = readNamedFile(file, "FILE", "configuration");
  if (text.length === 0) throw new Failure(`${file} is empty`, 2);
  const { sign } = flags;
  if (sign === undefined) {
    if (keyFile !== undefined)
      throw new Failure("CONFIG_PUBLIC_KEY is set: the text has to be signed, with --sign private.pem", 2);
    return { text, signature: null };
  }
  refuseUnpinned(file, text);
  const made = signatureOf(text, readNamedFile(String(sign), "--sign", "private key"));
  if (made.problem !== undefined) throw new Failure(`${String(sign)} (--sign) ${made.problem}`, 2);
  return { text, signature: made.signature };
}

/** A gateway takes no signed configuration that names files without their digests. */
function refuseUnpinned(file: string, text: Buffer): void {
  const source = { text, file };
  const document = parseJson(text);
  // What is wrong with it is reported when it is opened.
  if (document.issues.length > 0) return;
  parsed.set(source, document);
  const { files } = pinnedFilesOf(source, { references, environment: process.env }, "missing");
  if (files.length === 0) return;
  throw new Failure(
    `${file} names files without their SHA-256, which a signed configuration needs: edge-gateway pin ${file}`,
    2,
  );
}

/** Errors name the file. Names of files in it have to be absolute, as for every text that is not in a file. */
function opened(file: string, { text, signature }: Published, keyFile: string | undefined): Promise<Candidate> {
  const textSource = givenText(file, { text, signature, revision: null });
  return openCandidate({ configFile: file, textSource, ...(keyFile !== undefined && { configKeyFile: keyFile }) });
}

function refuseEnded(file: string, expiresAt: string | undefined): void {
  const end = expiresAt === undefined ? null : timeOf(expiresAt);
  if (end !== null && end <= systemClock.wall())
    throw new Failure(`${file} has ended at ${expiresAt} (expires_at): no gateway would take it`, 2);
}

function warn({ configuration: { snapshot } }: Candidate, file: string): void {
  const warnings = placedWarnings(configWarnings(snapshot), snapshot);
  if (warnings.length > 0) process.stderr.write(printable(warningLines(warnings, file)));
}

/** What etcd is set to cannot be asked. */
function sayIfLarge(file: string, { text, signature }: Published): void {
  const bytes = text.length + (signature?.length ?? 0) + AROUND_BYTES;
  if (bytes <= DEFAULT_MAX_REQUEST_BYTES) return;
  const line =
    `${file} has ${text.length} bytes, and etcd takes requests of 1.5 MiB unless it is started with ` +
    `--max-request-bytes ${bytes} or more, on each of its members`;
  process.stderr.write(printable([line]));
}

/** 1.5 MiB: the default of etcd's `--max-request-bytes`. */
const DEFAULT_MAX_REQUEST_BYTES = 1_572_864;
/** Keys, revisions and lengths around the two values. */
const AROUND_BYTES = 4_096;

/** Of the text that is there only the serial counts: it may name files that are not on this machine. */
function refuseLower(there: ConfigState, serial: number | undefined, name: string): void {
  const before = serialIn(there.text.value!);
  if (before === null || (serial !== undefined && serial >= before)) return;
  throw new Failure(
    `${name} has serial ${before}, and the new text ${serial ?? "none"}: gateways refuse it; nothing was written`,
    1,
  );
}

function serialIn(text: Buffer): number | null {
  try {
    const { serial } = Object(JSON.parse(text.toString().replace(/^\uFEFF/, ""))) as { readonly serial?: unknown };
    return Number.isSafeInteger(serial) ? (serial as number) : null;
  } catch {
    return null;
  }
}

/** `lines`: for people. `view`: null: there is nothing to compare with. */
async function compared(
  there: ConfigState,
  candidate: Candidate,
  { name, keyFile }: { readonly name: string; readonly keyFile: string | undefined },
) {
  if (isMissing(there) || there.text.value!.length === 0) return { lines: [`${name} has no text yet`], view: null };
  // Modules that it names would run here, beside the private key.
  const read = {
    text: there.text.value!,
    signature: there.signature.value?.toString() ?? null,
    revision: revisionName(there),
  };
  if (keyFile !== undefined && signedBy(keyFile)(name, read).problem !== undefined)
    return { lines: [`${name} has a text that CONFIG_PUBLIC_KEY has not signed, and is not compared`], view: null };
  let before: Candidate;
  try {
    before = await openCandidate({ configFile: name, textSource: givenText(name, read) });
  } catch (error) {
    if (!(error instanceof ConfigError || error instanceof Failure)) throw error;
    return { lines: [`${name} has a text that is not valid here, and is not compared`], view: null };
  }
  try {
    const [old, next] = [before.configuration.snapshot, candidate.configuration.snapshot];
    const found = view(await routeDiff(old, next));
    const lines = diffLines(found);
    return { lines: lines.length === 0 ? ["nothing differs in what is done with requests"] : lines, view: found };
  } finally {
    await before.close();
  }
}

function inWords(error: EtcdFailure, name: string): string {
  if (error.isTooLarge)
    return `${error.message}; start each member of etcd with a higher --max-request-bytes, or make the text smaller`;
  return `${name}: ${error.message}`;
}
