/**
 * Reads the key with which gateways share the certificates that one of them orders (ACME_FLEET_KEY_FILE).
 */
import { readRegularFile, whyUnreadable } from "../base/regular_file.ts";
import { isOfEtcd } from "./source_settings.ts";
import { sourceUrl } from "./source_url.ts";
import { hasScheme, type Host } from "./start_settings.ts";

interface Named {
  readonly acmeFleetKeyPath: string | null;
  readonly configPath: string | null;
}

/** 32 bytes; null when there is no such file, or when its problems have been added to `issues`. */
export function readFleetKey({ acmeFleetKeyPath: file, configPath }: Named, host: Host, issues: string[]) {
  if (file === null) return null;
  const url = configPath !== null && hasScheme(configPath) ? sourceUrl(configPath) : null;
  // What is wrong with the URL is reported with it.
  if (url === null || (typeof url !== "string" && !isOfEtcd(url)))
    issues.push(
      "ACME_FLEET_KEY_FILE needs a CONFIG_FILE_PATH (--config) that starts with etcds:// or etcd://, " +
        "which is where certificates are shared",
    );
  try {
    const text = String((host.readFile ?? readRegularFile)(file)).replace(/\r?\n$/, "");
    const key = keyBytes(text);
    if (key !== null) return key;
    const problem = text === "" ? "is empty" : "does not contain 32 random bytes in hex or base64";
    issues.push(`ACME_FLEET_KEY_FILE: ${file} ${problem}: openssl rand -hex 32 prints such a key`);
  } catch (error) {
    issues.push(`ACME_FLEET_KEY_FILE: cannot read ${file}: ${whyUnreadable(error)}`);
  }
  return null;
}

/** From hex, base64 or base64url; null: the text is none of them, or is not random. */
function keyBytes(text: string): Buffer | null {
  const isHex = /^[0-9a-f]{64}$/i.test(text);
  if (!isHex && !/^[\w+/-]{43}=?$/.test(text)) return null;
  const bytes = Buffer.from(text, isHex ? "hex" : "base64url");
  return new Set(bytes).size < LEAST_DIFFERENT ? null : bytes;
}

/** 32 random bytes have some thirty different ones; "0000…" and "changemechangeme…" have not. */
const LEAST_DIFFERENT = 16;
