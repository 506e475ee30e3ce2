/** Values of Host (RFC 3986 §3.2.2, §3.2.3), and whether they are a host with an optional port. */
export const HOSTS: readonly (readonly [host: string, fits: boolean])[] = [
  ["", true], ["h", true], ["h:80", true], ["[::1]:80", true], ["a.b-c_d~e", true], ["a,b", false], ["a!b", false], ["a;b", false], ["a=b", false], ["(a)", false], ["*.a", false], ["h:", true], ["[::1]", true],
  ["%41", false], ["h:abc", false], ["a:b:c", false], ["[::1", false], ["[x]", false], ["[::1]x", false], ["h:99999", false], ["h:65535", true],
  ["a b", false], ["a/b", false], ["a\\b", false], ["u@h", false], ["h?", false], ["h#", false], ["\u00e9", false], ["a\tb", false],
  ['"', false], ["<h>", false], ["{h}", false], ["h|", false], ["h^", false], ["`", false], ["H9z", true], [":80", true], ["h:8/", false], ["h:8a", false],
];

/** Names of headers, and whether they are those by which only the gateway tells of certificates. */
export const CERTIFICATE_NAMES: readonly (readonly [name: string, isOne: boolean])[] = [
  ["X-Client-Cert-Subject", true], ["X-Client-Cert-DN", true], ["X-Client-Cert-SAN", true], ["x_client_cert_verified", true], ["X-Client_Cert-CN", true], ["X-Client-Cert--", true],
  ["X-Client-Cert", false], ["X-Client-Certs-A", false], ["Y-Client-Cert-A", false], ["X-Custom--------", false], ["X-A", false], ["Accept-Charset-X", false],
];
