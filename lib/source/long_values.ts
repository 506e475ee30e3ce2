/**
 * Reads an answer of etcd that may have megabytes in one value: in slices, since `JSON.parse` and the decoding of
 * base64 would hold every request meanwhile.
 */

/** What stands in place of a long value until it is put in: ":" is not of the alphabet of base64. */
const MARK = "long:";
const BEGIN = Buffer.from('"value":"');
const LONG_BYTES = 64 * 1024;
/** Of base64, so a multiple of four; less than a millisecond of work. */
const BYTES_OF_A_STEP = 256 * 1024;

/**
 * As `JSON.parse`, in steps for `inSlices`; but long members "value" are Buffers, decoded from base64. Throws a
 * `SyntaxError`.
 */
export function* answerSteps(body: Buffer): Generator<void, unknown> {
  if (body.length < LONG_BYTES) return JSON.parse(body.toString());
  const values: Buffer[] = [];
  const rest: string[] = [];
  let from = 0;
  for (;;) {
    const begin = body.indexOf(BEGIN, from);
    if (begin < 0) break;
    const start = begin + BEGIN.length;
    const end = body.indexOf('"', start);
    if (end < 0) throw new SyntaxError("a value has no end");
    if (end - start < LONG_BYTES) {
      rest.push(body.toString("utf8", from, end));
    } else {
      rest.push(body.toString("utf8", from, start), MARK + values.length);
      values.push(yield* decoded(body.subarray(start, end)));
    }
    from = end;
  }
  rest.push(body.toString("utf8", from));
  return JSON.parse(rest.join(""), (name, value: unknown) =>
    name === "value" && typeof value === "string" && value.startsWith(MARK)
      ? values[Number(value.slice(MARK.length))]
      : value,
  );
}

/** Node's decoder skips what is not of the alphabet: the length tells. */
function* decoded(base64: Buffer): Generator<void, Buffer> {
  if (base64.length % 4 !== 0) throw new SyntaxError("a value is not base64");
  const padding = base64.at(-1) !== EQUALS ? 0 : base64.at(-2) !== EQUALS ? 1 : 2;
  const value = Buffer.allocUnsafe((base64.length / 4) * 3 - padding);
  let length = 0;
  for (let at = 0; at < base64.length; at += BYTES_OF_A_STEP, yield)
    length += value.write(base64.toString("latin1", at, at + BYTES_OF_A_STEP), length, "base64");
  if (length !== value.length) throw new SyntaxError("a value is not base64");
  return value;
}

const EQUALS = 0x3d;
