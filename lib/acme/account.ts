/**
 * The account at a directory (RFC 8555 §7.3) and its key in `account.key`: registration, and another key.
 */
import { ignore, messageOf } from "../base/errors.ts";
import type { Log } from "../base/log.ts";
import type { AcmeFiles, AcmeSettings } from "./contracts.ts";
import { jsonObject, type Directory, type DirectoryAnswer, type Signer } from "./directory.ts";
import { AcmeFailure } from "./failure.ts";
import { textIn, textsIn } from "./json_members.ts";
import { accountKey, macJws, signedJws, type AccountKey } from "./jws.ts";
import { keyFrom, newKey, pemOf } from "./signing_request.ts";

/**
 * ```
 * account.key          the key of the account; it is on disk before the account is registered with it
 * account-next.key     there only while the key is replaced at the directory that it names first: that knows the one
 *                      or the other
 * ```
 */
const KEY = "account.key";
const NEXT_KEY = "account-next.key";

export class AcmeAccount {
  readonly #files: AcmeFiles;
  readonly #log: Log;
  /** What the last `signer` has found, and where: a key that somebody has replaced on disk is noticed. */
  #known: (Pick<AcmeSettings, "directory" | "email"> & { readonly pem: Buffer; readonly signer: Signer }) | null = null;

  constructor(files: AcmeFiles, log: Log) {
    this.#files = files;
    this.#log = log;
  }

  /**
   * The account's signer; registers the account where there is none. A key on disk that cannot be read is an error, and
   * stays: the account could not be had again. Rejects with an `AcmeFailure`.
   */
  async signer(directory: Directory, settings: AcmeSettings): Promise<Signer> {
    await this.#finishRollover(directory, settings);
    let pem = this.#read(KEY);
    const { directory: url, email } = settings;
    const known = this.#known;
    const isKnown = known?.directory === url && known.email === email;
    if (isKnown && pem !== null && known.pem.equals(pem)) return known.signer;
    const isNew = pem === null;
    pem ??= pemOf(newKey());
    const key = keyOf(KEY, pem);
    if (isNew) await this.#write(KEY, pem);
    // Asked for first: a binding to an external account may have been good for one registration.
    const account = isNew ? null : await existingAccount(directory, key, email);
    const signer: Signer = { key, account: account ?? (await register(directory, key, settings)) };
    this.#known = { directory: url, email, pem, signer };
    return signer;
  }

  /** The next `signer` looks the account up again. */
  forget(): void {
    this.#known = null;
  }

  /** Replaces the key (RFC 8555 §7.3.5). Rejects with an `AcmeFailure`. */
  async rollover(directory: Directory, settings: AcmeSettings): Promise<void> {
    const signer = await this.signer(directory, settings);
    const left = this.#read(NEXT_KEY);
    if (left !== null)
      throw new AcmeFailure(
        `${NEXT_KEY} is of a replacement at ${directoryIn(left)} that was interrupted: ` +
          `configure that directory again to end it, or remove the file with the account there`,
      );
    const url = directory.urlOf("keyChange");
    const pem = pemOf(newKey());
    const next = keyOf(NEXT_KEY, pem);
    await this.#write(NEXT_KEY, Buffer.concat([Buffer.from(`Directory: ${settings.directory}\n`), pem]));
    const payload = { account: signer.account, oldKey: signer.key.jwk };
    try {
      await directory.post(url, signedJws({ jwk: next.jwk, url }, payload, next), signer);
    } catch (error) {
      // The answer may be lost while the directory has taken the key.
      if ((await this.#finishRollover(directory, settings).catch(ignore)) === "replaced") return;
      throw error;
    }
    await this.#takeNext(pem);
  }

  /**
   * Asks the directory which key holds, where the program or the connection has ended while the key was replaced. The
   * new key is on disk until that directory has answered: another one does not know.
   */
  async #finishRollover(directory: Directory, settings: AcmeSettings): Promise<"replaced" | "not replaced"> {
    const next = this.#read(NEXT_KEY);
    if (next === null || directoryIn(next) !== settings.directory) return "not replaced";
    const pem = next.subarray(next.indexOf("\n") + 1);
    if ((await existingAccount(directory, keyOf(NEXT_KEY, pem), null)) === null) {
      await this.#remove(NEXT_KEY);
      this.#log.info("ACME: the key of the account stays: its replacement was interrupted, or refused");
      return "not replaced";
    }
    await this.#takeNext(pem);
    this.#log.info("ACME: the new key of the account is in force: its replacement was interrupted");
    return "replaced";
  }

  /** In this order: a crash between the two leaves the new key in both files. */
  async #takeNext(pem: Buffer): Promise<void> {
    try {
      await this.#write(KEY, pem);
      await this.#remove(NEXT_KEY);
    } catch (error) {
      throw new AcmeFailure(
        `the directory has taken the new key, and the next request will put it in place: ${messageOf(error)}`,
      );
    }
  }

  #read(name: string): Buffer | null {
    try {
      return this.#files.read(name);
    } catch (error) {
      throw new AcmeFailure(messageOf(error));
    }
  }

  async #write(name: string, pem: Buffer): Promise<void> {
    await this.#files.write(name, pem).catch((error: unknown) => {
      throw new AcmeFailure(`${name} cannot be written: ${messageOf(error)}`);
    });
  }

  async #remove(name: string): Promise<void> {
    await this.#files.remove(name).catch((error: unknown) => {
      throw new AcmeFailure(`${name} cannot be removed: ${messageOf(error)}`);
    });
  }
}

function keyOf(name: string, pem: Buffer): AccountKey {
  try {
    return accountKey(keyFrom(pem));
  } catch {
    const without = name === KEY ? "a new account is registered" : FORMER_HOLDS;
    throw new AcmeFailure(
      `${name} is damaged, or no EC key on P-256: restore it from a copy. Without one remove it, and ${without}`,
    );
  }
}

const FORMER_HOLDS = "the former key is used while it holds";

/** At which directory the key is to replace another one. */
function directoryIn(next: Buffer): string {
  const directory = /^Directory: (\S+)\n/.exec(next.toString("latin1"))?.[1];
  if (directory === undefined)
    throw new AcmeFailure(`${NEXT_KEY} is damaged: restore it from a copy. Without one remove it, and ${FORMER_HOLDS}`);
  return directory;
}

/** The URL of the account that has the key; null: there is none. A contact that has changed is sent. */
async function existingAccount(directory: Directory, key: AccountKey, email: string | null): Promise<string | null> {
  const unknown = (error: unknown): null => {
    if (error instanceof AcmeFailure && error.type === "accountDoesNotExist") return null;
    throw error;
  };
  const payload = { onlyReturnExisting: true };
  const answer = await directory.post(directory.urlOf("newAccount"), payload, { key, account: null }).catch(unknown);
  if (answer === null) return null;
  const account = accountIn(answer);
  const contact = contactOf(email);
  if (contact.length > 0 && !textsIn(jsonObject(answer.body), "contact").includes(contact[0]!))
    await directory.post(account, { contact }, { key, account });
  return account;
}

async function register(directory: Directory, key: AccountKey, settings: AcmeSettings): Promise<string> {
  const { eab, email } = settings;
  if (eab === null && directory.requiresExternalAccount)
    throw new AcmeFailure(
      "the directory serves holders of an external account alone: configure eab, from its operator",
    );
  const url = directory.urlOf("newAccount");
  const contact = contactOf(email);
  const answer = await directory.post(
    url,
    {
      termsOfServiceAgreed: true,
      ...(contact.length > 0 && { contact }),
      ...(eab !== null && { externalAccountBinding: macJws({ kid: eab.kid, url }, key.jwk, eab.hmacKey) }),
    },
    { key, account: null },
  );
  return accountIn(answer);
}

function contactOf(email: string | null): readonly string[] {
  return email === null ? [] : [`mailto:${email}`];
}

function accountIn({ location, body }: DirectoryAnswer): string {
  if (location === null) throw new AcmeFailure("the directory does not name the URL of the account");
  const status = textIn(jsonObject(body), "status") ?? "valid";
  if (status !== "valid")
    throw new AcmeFailure(
      `the account is ${status === "revoked" ? "revoked" : "deactivated"}: remove account.key for a new one`,
    );
  return location;
}
