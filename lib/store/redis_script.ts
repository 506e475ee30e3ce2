/**
 * The Lua script that makes a decision in Redis or Valkey, and the commands that run it.
 */
import { hash } from "node:crypto";
import type { Decision, Window } from "./counters.ts";
import { bulk, type RespValue } from "./resp.ts";

/**
 * The beginning of a script about all windows of one caller, which counts exactly as `memory.ts` does: at most 64 marks
 * a window, each of which counts `batch` admissions and has the time of the latest one. KEYS[1] is the caller; ARGV has
 * name, limit and milliseconds of each window. The script returns whether the request is admitted, the microseconds
 * until it would be, and for each window what remains and the microseconds until it gives back a request.
 *
 * The key holds one string: for each window its name, its batch, its admissions, and its marks in microseconds by the
 * server's clock, the oldest first. It expires with the longest window. A refused request writes nothing, except when
 * the clock went back.
 */
export const READ_WINDOWS = `
local function mark(marks, at) return (struct.unpack('>d', marks, at)) end

-- The marks of a window whose limit was another one, or whose server had another clock: see merged() in marks.ts.
local function converted(old, limit, batch, now)
  local used, marks, last = math.min(limit, old.used), {}, 0
  while last < used do
    last = math.min(used, last + batch)
    local at = math.floor((old.used - 1 - (used - last)) / old.batch)
    marks[#marks + 1] = struct.pack('>d', math.min(now, mark(old.marks, 8 * at + 1)))
  end
  return used, table.concat(marks)
end

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local stored = {}
local value = redis.call('GET', KEYS[1]) or ''
local at = 1
while at <= #value do
  local name, batch, used
  name, batch, used, at = struct.unpack('>Hc0dd', value, at)
  local size = 8 * math.ceil(used / batch)
  stored[name] = { batch = batch, used = used, marks = string.sub(value, at, at + size - 1) }
  at = at + size
end

local windows, retry, longest, wentBack = {}, 0, 0, false
for i = 1, #ARGV - 2, 3 do
  local limit, span = tonumber(ARGV[i + 1]), ARGV[i + 2] * 1000
  local batch, used, marks, reset = math.ceil(limit / 64), 0, '', 0
  local old = stored[ARGV[i]]
  if old and old.used > 0 then
    used, marks = old.used, old.marks
    local isAhead = mark(marks, #marks - 7) > now
    wentBack = wentBack or isAhead
    if old.batch ~= batch or used > limit or isAhead then
      used, marks = converted(old, limit, batch, now)
    end
    local first = 1
    while first < #marks and now - mark(marks, first) >= span do first = first + 8 end
    if first > #marks then
      used, marks = 0, ''
    else
      used, marks = used - (first - 1) / 8 * batch, string.sub(marks, first)
      reset = span - (now - mark(marks, 1))
    end
  end
  if used >= limit and reset > retry then retry = reset end
  longest = math.max(longest, span / 1000)
  windows[#windows + 1] = { name = ARGV[i], limit = limit, span = span, batch = batch, used = used, marks = marks, \
reset = reset }
end
-- Marks that were moved back are stored in any case: moved by each request, they would never leave the window.
`;

/** A decision, as described above. */
export const SCRIPT = `${READ_WINDOWS}
local parts, writes = {}, retry == 0 or wentBack
local reply = { retry == 0 and 1 or 0, retry }
for _, w in ipairs(windows) do
  if retry == 0 then
    -- Only the newest mark may count less than a batch: it moves to now.
    if w.used % w.batch > 0 then w.marks = string.sub(w.marks, 1, -9) end
    w.marks, w.used = w.marks .. struct.pack('>d', now), w.used + 1
    if #w.marks == 8 then w.reset = w.span end
  end
  if writes then parts[#parts + 1] = struct.pack('>Hc0dd', #w.name, w.name, w.batch, w.used) .. w.marks end
  reply[#reply + 1] = w.limit - w.used
  reply[#reply + 1] = w.reset
end
if writes then redis.call('SET', KEYS[1], table.concat(parts), 'PX', string.format('%.0f', math.ceil(longest))) end
return reply
`;

/** A script, and the name by which the server knows it. */
export interface Script {
  readonly text: string;
  readonly sha1: string;
}

export function scriptOf(text: string): Script {
  return { text, sha1: hash("sha1", text) };
}

export function argumentsOf(windows: readonly Window[]): readonly string[] {
  return windows.flatMap(({ name, limit, ms }) => [name, String(limit), String(ms)]);
}

/** The commands of a script with these arguments, and its replies about so many windows. */
export class ScriptCalls {
  readonly #windows: number;
  readonly #script: Script;
  /** Before and behind the key. */
  readonly #head: string;
  readonly #cached: string;
  readonly #arguments: string;

  constructor(script: Script, parts: readonly string[], windows: number) {
    this.#windows = windows;
    this.#arguments = parts.map(bulk).join("");
    this.#script = script;
    this.#head = `*${4 + parts.length}\r\n`;
    this.#cached = this.#head + bulk("EVALSHA") + bulk(script.sha1) + bulk("1");
  }

  /** Runs the script that the server knows; the reply is NOSCRIPT where it does not. */
  cached(key: string): string {
    return this.#cached + bulk(key) + this.#arguments;
  }

  /** Sends the script, which the server remembers from then on. */
  whole(key: string): string {
    return this.#head + bulk("EVAL") + bulk(this.#script.text) + bulk("1") + bulk(key) + this.#arguments;
  }

  /** Undefined when the reply is not one of the script. */
  decisionOf(reply: RespValue): Decision | undefined {
    if (
      !Array.isArray(reply) ||
      reply.length !== 2 + 2 * this.#windows ||
      !reply.every((each) => typeof each === "number")
    )
      return undefined;
    const [admitted, retry, ...windows] = reply as number[];
    return {
      admitted: admitted === 1,
      retryMs: retry! / 1000,
      remaining: windows.filter((_, i) => i % 2 === 0),
      resetMs: windows.filter((_, i) => i % 2 === 1).map((micros) => micros / 1000),
    };
  }
}
