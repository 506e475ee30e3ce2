/**
 * The Lua scripts that book costs, and that count calendar periods, in Redis or Valkey: one call a decision.
 */
import { READ_WINDOWS } from "./redis_script.ts";

/**
 * Books a cost, the last of ARGV, in all windows of one caller; with a cost of 0 it only looks, and writes nothing.
 * What it books beyond a limit takes the place of the oldest marks, as in `costs.ts`.
 */
export const COST_SCRIPT = `${READ_WINDOWS}
local cost = tonumber(ARGV[#ARGV])
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
  reply[#reply + 1] = w.limit - w.used
  reply[#reply + 1] = w.reset
end
if cost > 0 or wentBack then redis.call('SET', KEYS[1], table.concat(parts), 'PX', string.format('%.0f', \
math.ceil(longest))) end
return reply
`;

/**
 * Counts in a calendar period, as `quotas.ts` does. ARGV: the limit, the number of the period, the milliseconds until
 * it ends, and what to count, "one": a request, if anything is left. The key holds the number of the period and the
 * count; it outlives the period by a day, since clocks of gateways differ, and by a year while it is overdrawn.
 */
export const QUOTA_SCRIPT = `
local limit, number, rest, cost = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local at, used = string.match(redis.call('GET', KEYS[1]) or '', '^(-?%d+) (%d+)$')
at, used = tonumber(at) or number, tonumber(used) or 0
local passed = number - at
if passed > 0 then used = math.max(0, used - passed * limit) end
if passed ~= -1 then at = number end
local admitted = used < limit
if not cost then cost = admitted and 1 or 0 end
if cost > 0 then
  used = math.min(used + cost, 4503599627370495)
  local life = rest + 86400000 * (used > limit and 366 or 1)
  redis.call('SET', KEYS[1], string.format('%.0f %.0f', at, used), 'PX', string.format('%.0f', life))
end
return { admitted and 1 or 0, admitted and 0 or rest * 1000, math.max(0, limit - used), rest * 1000 }
`;
