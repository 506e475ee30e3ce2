/**
 * The schema of `errors`, bodies for the gateway's own errors, and the language of these bodies: texts with
 * placeholders such as `${error.code}`.
 */
import { isUtf8 } from "node:buffer";
import { TOKEN_CHARACTERS } from "../base/http_grammar.ts";
import { suggest } from "../base/suggest.ts";
import type { FeatureFields } from "./feature_fields.ts";
import { METHOD } from "./fields.ts";
import { define } from "./schema_core.ts";
import * as s from "./whole_schema.ts";

export const PLACEHOLDERS = ["error.code", "error.status", "error.title", "error.detail", "request.id"] as const;

export type Placeholder = (typeof PLACEHOLDERS)[number];

/** A body is made of one piece and sent as it is, or made for each error. */
const MAX_BYTES = 1024 * 1024;
const MAX_BYTES_TO_FILL = 64 * 1024;
const MAX_PLACEHOLDERS = 64;

/** RFC 9110 §15.3.5, §15.3.6, §15.4.5. */
const BODILESS = [204, 205, 304];

/** Of a valid body: texts and placeholders in turn, beginning and ending with a text. */
export function piecesOf(text: string): readonly string[] {
  return text.split(PLACEHOLDER).map((piece, i) => (i % 2 === 0 ? piece.replaceAll("$${", "${") : piece));
}

/** `$${` is `${` as text. */
const PLACEHOLDER = /(?<!\$)\$\{([^{}]*)\}/;
const OPENED = /(?<!\$)\$\{/;

function bodyProblem(text: string): string | undefined {
  const bytes = Buffer.byteLength(text);
  const pieces = text.split(PLACEHOLDER);
  const names = pieces.filter((_, i) => i % 2 === 1);
  const unknown = names.find((name) => !(PLACEHOLDERS as readonly string[]).includes(name));
  const meant = unknown === undefined ? undefined : suggest(unknown, PLACEHOLDERS);
  if (unknown !== undefined)
    return (
      `has no placeholder "\${${unknown.slice(0, 40)}}": ` +
      (meant === undefined
        ? `there are ${PLACEHOLDERS.map((name) => `\${${name}}`).join(", ")}; write $\${ for \${ as text`
        : `did you mean "\${${meant}}"?`)
    );
  if (pieces.some((piece, i) => i % 2 === 0 && OPENED.test(piece)))
    return "has ${ without its }: write $${ for ${ as text";
  if (names.length > MAX_PLACEHOLDERS) return `has ${names.length} placeholders: at most ${MAX_PLACEHOLDERS}`;
  const most = names.length === 0 ? MAX_BYTES : MAX_BYTES_TO_FILL;
  if (bytes <= most) return undefined;
  const why = names.length === 0 ? "" : " where it has placeholders, since it is made for each error";
  return `has ${bytes} bytes: at most ${most}${why}`;
}

function fileProblem(content: Buffer): string | undefined {
  if (content.length > MAX_BYTES) return `has ${content.length} bytes: at most ${MAX_BYTES}`;
  return isUtf8(content) ? bodyProblem(content.toString()) : "is not text in UTF-8";
}

/** A text of its own kind: `${…}` are no references. */
const BODY = define<"string", string, string>({
  expects: "a text",
  describe: "The body, with ${error.code}, ${error.status}, ${error.title}, ${error.detail} and ${request.id}.",
  kinds: ["string"],
  check(node, at, context) {
    const problem = bodyProblem(node.value);
    return problem === undefined ? node.value : s.report(context, at, node, problem);
  },
  jsonSchema: () => ({ type: "string" }),
});

const PARAMETER = `[${TOKEN_CHARACTERS}]+=(?:[${TOKEN_CHARACTERS}]+|"[\\t !#-\\[\\]-~]*")`;
const NAME = `[!#$%&'+.^_\`|~0-9A-Za-z-]+`;
const MEDIA_TYPE = new RegExp(`^${NAME}/${NAME}(?: ?; ?${PARAMETER})*$`);
const CHARSET = /; ?charset="?([^";]*)/i;

const CONTENT_TYPE = s.string({
  references: "none",
  max: 200,
  pattern: MEDIA_TYPE,
  hint: 'a media type, such as "text/html; charset=utf-8"',
  describe: "The media type of the body; only requests that accept it get the body, see always.",
  check(text) {
    const charset = CHARSET.exec(text)?.[1]!.toLowerCase() ?? "utf-8";
    return ["utf-8", "us-ascii"].includes(charset) ? undefined : "bodies are sent in UTF-8";
  },
});

const OWN_ERROR = s.object(
  {
    codes: s.optional(
      s.array(
        s.string({
          references: "none",
          pattern: /^[A-Za-z][\w.:-]{0,99}$/,
          hint: 'the code of an error: "rate_limited"',
        }),
        { min: 1, max: 100, describe: "Codes of errors; with statuses, errors of either." },
      ),
    ),
    statuses: s.optional(
      s.array(s.integer({ min: 400, max: 599 }), { min: 1, max: 100, describe: "Statuses of errors." }),
    ),
    methods: s.optional(
      s.array(METHOD, { min: 1, describe: "Methods of the requests; default: all. GET implies HEAD." }),
    ),
    status: s.optional(
      s.integer({ min: 200, max: 599, describe: "The status that is sent; default: that of the error." }),
    ),
    content_type: CONTENT_TYPE,
    body: s.optional(BODY),
    body_file: s.optional(s.file({ describe: "A file with the body, in UTF-8.", check: fileProblem })),
    always: s.withDefault(
      s.boolean({ describe: "Whether requests get the body that do not accept its media type, too." }),
      false,
    ),
  },
  {
    refine({ body, bodyFile, status }, report) {
      if (body !== undefined && bodyFile !== undefined) report('has "body" and "body_file": remove one of them');
      const field = body === undefined ? "body_file" : "body";
      const hasBody = body !== undefined || bodyFile !== undefined;
      if (status !== undefined && BODILESS.includes(status)) {
        if (hasBody) report(`replies with status ${status} have no body: remove it, or use another status`, field);
      } else if (!hasBody) report('needs "body" or "body_file"');
    },
  },
);

export const ERRORS_FIELD = s.array(s.named("ErrorBody", OWN_ERROR), {
  max: 100,
  describe: "Own bodies for errors that the gateway answers; the first that fits is used, the service's first.",
});

export const fields: FeatureFields = { schemas: { errors: ERRORS_FIELD } };
