/**
 * The Lua scripts that book costs, and that count calendar periods, in Redis or Valkey: one call a decision.
 */
import { READ_WINDOWS } from "./redis_script.ts";

/**
 * The requests in progress of one caller: the times at which they began, in the same slot of a Cluster as its count.
 * One that ends takes the newest away, so that those of a gateway that is gone become the oldest, and end after an
 * hour.
 */
const RESERVATIONS = `
local span, places = 3600000000, KEYS[1] .. ':r'
local held = redis.call('GET', places) or ''
while #held > 0 and now - struct.unpack('>d', held, 1) >= span do held = string.sub(held, 9) end
local function hold(times)
  held = times
  redis.call('SET', places, held, 'PX', #held > 0 and 3600000 or 1)
end
local function begin() hold(held .. struct.pack('>d', now)) end
local function finish() hold(string.sub(held, 1, -9)) end
local function reserved(each) return #held / 8 * each end
`;

const BOOK_COST = `
local parts = {}
local reply = { retry == 0 and 1 or 0, retry }
for _, w in ipairs(windows) do
  local left = math.min(cost, w.limit)
  while left > 0 do
    local newest = w.used % w.batch
    local part = math.min(left, w.batch - newest)
    if newest > 0 then w.marks = string.sub(w.marks, 1, -9) end
    w.marks, w.used, left = w.marks .. struct.pack('>d', now), w.used + part, left - part
  end
  if w.used > w.limit then w.used, w.marks = converted(w, w.limit, w.batch, now) end
  parts[#parts + 1] = struct.pack('>Hc0dd', #w.name, w.name, w.batch, w.used) .. w.marks
  reply[#reply + 1] = math.max(0, w.limit - w.used - hidden)
  reply[#reply + 1] = w.reset
end
if cost > 0 or wentBack then redis.call('SET', KEYS[1], table.concat(parts), 'PX', string.format('%.0f', \
math.ceil(longest))) end
return reply
`;

/**
 * Books a cost, the last of ARGV, in all windows of one caller; with a cost of 0 it only looks, and writes nothing.
 * What it books beyond a limit takes the place of the oldest marks, as in `costs.ts`.
 */
export const COST_SCRIPT = `${READ_WINDOWS}
local cost, hidden = tonumber(ARGV[#ARGV]), 0
${BOOK_COST}`;

/**
 * The same with a reserve, in ARGV before the cost. A cost of -1: a request begins, if anything is left besides what
 * others hold; else it ends.
 */
export const RESERVED_COST_SCRIPT = `${READ_WINDOWS}${RESERVATIONS}
local reserve, cost, hidden = tonumber(ARGV[#ARGV - 1]), tonumber(ARGV[#ARGV]), 0
if cost >= 0 then finish() else
  cost = 0
  local isLeft = retry == 0
  for _, w in ipairs(windows) do isLeft = isLeft and w.used + reserved(reserve) < w.limit end
  if isLeft then
    begin()
    hidden = reserve
  elseif retry == 0 then retry = 1 end
end
${BOOK_COST}`;

/**
 * Counts in a calendar period, as `quotas.ts` does. ARGV: the limit, the number of the period, the milliseconds until
 * it ends, and what to count, "one": a request, if anything is left. The key holds the number of the period and the
 * count; it outlives the period by a day, since clocks of gateways differ, and by a year while it is overdrawn.
 */
const READ_QUOTA = `
local limit, number, rest, cost = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local at, used = string.match(redis.call('GET', KEYS[1]) or '', '^(-?%d+) (%d+)$')
at, used = tonumber(at) or number, tonumber(used) or 0
local passed = number - at
if passed > 0 then used = math.max(0, used - passed * limit) end
if passed ~= -1 then at = number end
local admitted, hidden = used < limit, 0
`;

const BOOK_QUOTA = `
if cost > 0 then
  used = math.min(used + cost, 4503599627370495)
  local life = rest + 86400000 * (used > limit and 366 or 1)
  redis.call('SET', KEYS[1], string.format('%.0f %.0f', at, used), 'PX', string.format('%.0f', life))
end
local retry = admitted and 0 or used < limit and 1 or rest * 1000
return { admitted and 1 or 0, retry, math.max(0, limit - used - hidden), rest * 1000 }
`;

export const QUOTA_SCRIPT = `${READ_QUOTA}
if not cost then cost = admitted and 1 or 0 end
${BOOK_QUOTA}`;

/** With a reserve, the fifth of ARGV; a cost of -1 as of `RESERVED_COST_SCRIPT`. */
export const RESERVED_QUOTA_SCRIPT = `${READ_QUOTA}
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
${RESERVATIONS}
local reserve = tonumber(ARGV[5])
if cost >= 0 then finish() else
  cost = 0
  admitted = used + reserved(reserve) < limit
  if admitted then
    begin()
    hidden = reserve
  end
end
${BOOK_QUOTA}`;
