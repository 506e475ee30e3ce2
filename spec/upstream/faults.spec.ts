import { expect, it } from "vitest";
import { faultCode } from "../../lib/upstream/faults.ts";

/** As Node 20 and Node 26 give them, of the alerts that `openssl s_server -Verify` sends after the handshake of TLS 1.3. */
it.each([
  "ERR_SSL_TLSV13_ALERT_CERTIFICATE_REQUIRED",
  "ERR_SSL_TLSV1_ALERT_UNKNOWN_CA",
  "ERR_SSL_SSLV3_ALERT_UNSUPPORTED_CERTIFICATE",
  "ERR_SSL_SSL/TLS_ALERT_UNSUPPORTED_CERTIFICATE",
  "ERR_SSL_SSL/TLS_ALERT_HANDSHAKE_FAILURE",
])("treats %s as a failure to connect, also after the handshake", (code) => {
  expect(faultCode(Object.assign(new Error("alert"), { code }), false)).toBe("upstream_connect_failed");
});

it.each([
  ["ERR_SSL_SSL/TLS_ALERT_BAD_RECORD_MAC", "upstream_reset"],
  ["ERR_SSL_TLSV1_ALERT_INTERNAL_ERROR", "upstream_reset"],
  ["ECONNRESET", "upstream_reset"],
])("treats %s after the handshake as %s", (code, expected) => {
  expect(faultCode(Object.assign(new Error("broken"), { code }), false)).toBe(expected);
});
