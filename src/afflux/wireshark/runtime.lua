-- The code of the dissector. The table PROTOCOLS before it describes the frames.
-- Needs Wireshark 4.0 or newer. Numbers of 64 bits are UInt64; all others are exact in a Lua number.

local LARGEST = 0x4000000 -- the largest frame that is shown: 64 MiB
local FIRST = 0xFFFF -- the largest first frame that is recognized
local ONE_MORE = DESEGMENT_ONE_MORE_SEGMENT

local tcp_stream = Field.new("tcp.stream")
local ws_opcode = Field.new("websocket.opcode")
local ws_mask = Field.new("websocket.mask")

local connections = {} -- by the number of the TCP stream

-- reading -------------------------------------------------------------------------------------------------------

local function fail(rule, reason) error({ rule = rule, reason = reason }, 0) end

local function u64(value)
  if type(value) ~= "number" then return value end
  return UInt64.new(value % 0x100000000, math.floor(value / 0x100000000))
end

local function set(word, bit) return math.floor(word / bit) % 2 == 1 end

local function printable(text)
  return (text:gsub("[^ -~]", function(one) return string.format("\\x%02x", one:byte()) end))
end

-- A reader has: tvb, start and stop (the frame), at, word, p (the protocol), f (the frame's declaration), tree (nil to
-- read without showing), open (the frame has no length: where bytes are missing, more are needed).

local function malformed(c, reason, rule) fail(rule or c.p.rules.malformed, c.f.name .. ": " .. reason) end

local function missing(c, stop, name)
  if c.open then error({ need = stop }, 0) end
  fail(c.p.rules.malformed, string.format("%s ends after %d bytes, within or before %s", c.f.name, c.stop - c.start, name))
end

local function put(c, key, at, size, value, shown)
  if not c.tree then return end
  local field = c.p.fields[key]
  if size > 0 then
    local range = c.tvb:range(at, size)
    if value == nil then c.tree:add(field, range) else c.tree:add(field, range, value) end
  elseif value ~= nil then
    c.tree:add(field, value)
  end
  if shown then
    if c.seen[key] then shown = c.seen[key] .. "," .. shown else c.order[#c.order + 1] = key end
    c.seen[key] = shown
  end
end

local function number(c, key, at, size, value)
  local shown = tostring(value)
  if key == "code" then
    local name = c.p.codes and c.p.codes[value]
    shown = string.format("0x%03X", value) .. (name and " " .. name or "")
  end
  put(c, key, at, size, u64(value), shown)
end

local function octets(c, key, at, size)
  number(c, key .. "_len", at, size, size)
  put(c, key, at, size)
end

local function text(c, key, at, size, value)
  put(c, key, at, size, value, printable(value))
end

local function value_at(c, field, at)
  local size = field.size
  if size <= 4 then
    local value = c.tvb:range(at, size):uint()
    return field.bits == 31 and value % 0x80000000 or value
  end
  local high, low = c.tvb:range(at, 4):uint(), c.tvb:range(at + 4, 4):uint()
  return UInt64.new(low, field.bits == 63 and high % 0x80000000 or high)
end

local function sized(c, field, size)
  local at = c.at
  if field.column == "metadata" or field.column == "data" then
    octets(c, field.column, at, size)
  elseif field.secret then
    text(c, field.name, at, size, string.format("(%d bytes)", size))
  elseif field.text then
    local raw = size > 0 and c.tvb:range(at, size):raw() or ""
    if raw:find("[\128-\255]") then malformed(c, field.name .. " is not ASCII") end
    text(c, field.name, at, size, raw)
  else
    put(c, field.name, at, size)
  end
  c.at = at + size
end

local function compact(c, what)
  if c.at >= c.stop then malformed(c, what .. " is missing") end
  local first = c.tvb:range(c.at, 1):uint()
  c.at = c.at + 1
  if first >= 0x80 then return first - 0x80 end
  local stop = c.at + first + 1
  if stop > c.stop then
    malformed(c, string.format("%s of %d bytes where %d are left", what, first + 1, c.stop - c.at))
  end
  local raw = c.tvb:range(c.at, first + 1):raw()
  if raw:find("[\128-\255]") then malformed(c, what .. " is not ASCII") end
  c.at = stop
  return raw
end

local function list_size(c, at)
  local size = math.max(0, math.min(at + 3, c.stop) - at)
  return 3 + 12 * ((size > 0 and c.tvb:range(at, size):uint() or 0) % 0x100000)
end

-- The size of the payload of an entry that has no length (rsocket-draft R-13).
local function own_size(c, id, marked)
  local chain = c.p.chain
  local numbered = chain.numbers[id] or id
  local ends = chain.sizes[c.f.point .. ":" .. tostring(numbered)]
  local named = type(id) == "number" and tostring(id) or "'" .. id .. "'"
  if not ends then
    malformed(c, "the extension " .. named .. " is not supported, and may not be ignored", chain.rules.unsupported)
  end
  local kind = marked and ends[2] or ends[1]
  if kind == "open" then
    malformed(c, "the payload of extension " .. named .. " needs a length", chain.rules.open)
  elseif kind == "compact" then
    local at = c.at
    compact(c, "a lease strategy")
    local size = c.at - at
    c.at = at
    return size
  elseif kind == "list" then
    return list_size(c, c.at)
  elseif type(kind) == "number" then
    return kind
  end
  local size = math.max(0, math.min(c.at + 2, c.stop) - c.at)
  local token = 2 + (size > 0 and c.tvb:range(c.at, size):uint() or 0)
  return kind == "token" and token or token + list_size(c, c.at + token)
end

local function varint(c)
  local low, high, at = 0, 0, c.at
  for count = 0, 9 do
    if at >= c.stop then error({ need = at + 1 }, 0) end
    local octet = c.tvb:range(at, 1):uint()
    at = at + 1
    local part, shift = octet % 0x80, 7 * count
    if shift < 28 then
      low = low + part * 2 ^ shift
    elseif shift == 28 then
      low = low + (part % 16) * 2 ^ 28
      high = math.floor(part / 16)
    else
      high = high + part * 2 ^ (shift - 32)
    end
    if octet < 0x80 then
      if high > 0xFFFFFFFF then break end
      c.at = at
      return high * 0x100000000 + low, UInt64.new(low, high)
    end
  end
  fail(c.p.rules.varint, c.p.varint)
end

local function length(c)
  local size = varint(c)
  if size > c.p.most then fail(c.p.rules.length, c.p.too_large) end
  if c.at + size > c.stop then error({ need = c.at + size }, 0) end
  return size
end

-- The size of the elements of a subscription, which its "subscribed" had. The first pass notes it for later ones.
local function element_size(c)
  local key = c.number .. ":" .. c.start
  if c.visited then return c.memo[key] or 0 end
  c.memo[key] = c.sizes[tostring(c.id)] or 0
  return c.memo[key]
end

local function fixed_size(c, size)
  if c.at + size > c.stop then error({ need = c.at + size }, 0) end
  octets(c, "data", c.at, size)
  c.at = c.at + size
end

local READ = {}

function READ.fixed(c, run)
  if c.stop - c.at < run.size then missing(c, c.at + run.size, run.last) end
  for _, field in ipairs(run.fields) do
    local value = value_at(c, field, c.at + field.at)
    if field.zero and value ~= 0 then malformed(c, "a reserved byte is not 0", field.zero) end
    number(c, field.key, c.at + field.at, field.size, value)
    c[field.key] = value
  end
  c.at = c.at + run.size
end

function READ.sized(c, field)
  if field.flag and not set(c.word, field.flag) then return end
  local width = field.bits / 8
  if c.at + width > c.stop then missing(c, c.at + width, field.name) end
  local size = c.tvb:range(c.at, width):uint()
  if field.bits == 32 then size = size % 0x80000000 end
  if field.inclusive then size = size - width end
  c.at = c.at + width
  if size < 0 or c.at + size > c.stop then
    if c.open then error({ need = c.at + size }, 0) end
    malformed(c, string.format("%s of %d bytes where %d are left", field.name, size, c.stop - c.at))
  end
  sized(c, field, size)
end

function READ.rest(c, field) sized(c, field, c.stop - c.at) end

function READ.flagged(c, field)
  if not set(c.word, field.flag) then return end
  if c.at + 4 > c.stop then missing(c, c.at + 4, field.name) end
  number(c, field.key, c.at, 4, c.tvb:range(c.at, 4):uint() % 0x80000000)
  c.at = c.at + 4
end

function READ.chain(c, field)
  if not set(c.word, field.flag) then return end
  local chain, count, flags = c.p.chain, 0, 0x80
  while set(flags, 0x80) do
    if count == chain.most then malformed(c, string.format("more than %d entries", chain.most)) end
    count = count + 1
    local begin = c.at
    local id = compact(c, "an extension")
    if c.at >= c.stop then fail(c.p.rules.malformed, c.f.name .. " ends within an extension entry") end
    flags = c.tvb:range(c.at, 1):uint()
    c.at = c.at + 1
    local size
    if set(flags, 0x40) then
      if c.at + 3 > c.stop then fail(c.p.rules.malformed, c.f.name .. " ends within the length of an entry") end
      size = c.tvb:range(c.at, 3):uint()
      c.at = c.at + 3
    else
      size = own_size(c, id, set(flags, 0x08))
    end
    if c.at + size > c.stop then
      malformed(c, string.format("an entry of %d bytes where %d are left", size, c.stop - c.at))
    end
    c.at = c.at + size
    text(c, field.name, begin, c.at - begin, tostring(chain.names[id] or id))
  end
end

function READ.mime(c, field)
  if field.flag and not set(c.word, field.flag) then return end
  local begin = c.at
  local id = compact(c, field.name)
  text(c, field.name, begin, c.at - begin, c.p.chain.mimes[id] or id)
end

function READ.varint(c, field)
  local begin = c.at
  local value, exact = varint(c)
  number(c, field.key, begin, c.at - begin, value < 2 ^ 53 and value or exact)
  c[field.name] = value
  if field.key == "stream" then c.id = exact end
end

function READ.ids(c, field)
  local count = varint(c)
  if count > c.p.ids then fail(c.p.rules.length, c.p.too_many) end
  for _ = 1, count do
    local begin = c.at
    local value, exact = varint(c)
    number(c, field.name, begin, c.at - begin, value < 2 ^ 53 and value or exact)
  end
end

function READ.text(c, field)
  local size = length(c)
  local range = size > 0 and c.tvb:range(c.at, math.min(size, field.most)) or nil
  local value = range and range:string(ENC_UTF_8) or ""
  put(c, field.name, c.at, math.min(size, field.most), value, printable(value))
  if field.exact and range and range:raw() ~= value then
    c.problem = { rule = field.exact, reason = "the name of the publisher is not UTF-8" }
  end
  c.at = c.at + size
end

function READ.octets(c) fixed_size(c, length(c)) end

function READ.element(c)
  local size = element_size(c)
  if size == 0 then return fixed_size(c, length(c)) end
  number(c, "element_size", c.at, 0, size)
  fixed_size(c, size)
end

function READ.elements(c)
  local size = element_size(c)
  if size == 0 then
    fail(c.p.rules.elements, string.format("onNextPacked for %s, which has no element size", tostring(c.id)))
  end
  number(c, "element_size", c.at, 0, size)
  fixed_size(c, c.count * size)
end

-- frames --------------------------------------------------------------------------------------------------------

local function letters(c)
  local found = {}
  for _, flag in ipairs(c.f.flags) do
    if set(c.word, flag.bit) then found[#found + 1] = flag.letter end
  end
  return table.concat(found, ",")
end

local function line(c, name)
  local words = {}
  local function add(key)
    if c.seen[key] then words[#words + 1] = key .. "=" .. c.seen[key] end
  end
  add("stream")
  words[#words + 1] = name
  if c.flags and c.flags ~= "" then words[#words + 1] = "[" .. c.flags:gsub(",", "") .. "]" end
  local first = { "n", "code", "metadata_len", "data_len" }
  for _, key in ipairs(first) do add(key) end
  local done = { stream = true, n = true, code = true, metadata_len = true, data_len = true }
  for _, key in ipairs(c.order) do
    if not done[key] then add(key) end
  end
  return table.concat(words, " ")
end

-- Show one frame: "read" reads its fields. Returns what is wrong with it, or nil.
local function show(c, pinfo, root, begin, size, name, read)
  c.order, c.seen = {}, {}
  local tree = root:add(c.p.proto, size > 0 and c.tvb:range(begin, size) or c.tvb:range(begin))
  c.tree = tree
  tree:add(c.p.fields.dir, c.client and ">" or "<"):set_generated()
  tree:add(c.p.fields.type, name or "?"):set_generated()
  if c.size then tree:add(c.p.fields.length, u64(c.size)):set_generated() end
  local good, wrong = pcall(read, c)
  if good then wrong = c.problem end
  if not good and type(wrong) ~= "table" then error(wrong, 0) end
  if wrong and wrong.need then wrong = { rule = "truncated", reason = "the frame is cut off" } end
  if c.flags then tree:add(c.p.fields.flags, c.flags):set_generated() end
  local shown = line(c, name or "?")
  if wrong then
    tree:add(c.p.fields["error.rule"], wrong.rule):set_generated()
    tree:add(c.p.fields["error.reason"], wrong.reason):set_generated()
    shown = shown .. string.format(" malformed: %s (%s)", printable(wrong.reason), wrong.rule)
    tree:add_proto_expert_info(c.p.expert, wrong.reason)
  end
  tree:append_text(", " .. shown)
  local info = tostring(pinfo.cols.info)
  pinfo.cols.info = (c.shared.empty and "" or info .. "; ") .. (c.client and "> " or "< ") .. shown
  c.shared.empty = false
  return wrong
end

local function reader(p, tvb, at, stop, client, shared, pinfo)
  return { p = p, tvb = tvb, start = at, at = at, stop = stop, client = client, word = 0, shared = shared,
    number = pinfo.number, visited = pinfo.visited, memo = shared.memo, sizes = shared.sizes }
end

local function fields(c)
  for _, run in ipairs(c.f.runs) do READ[run.read](c, run) end
end

-- The declaration of the frame that begins here, and its name; c.word has the word with the flags.
local function declared(c)
  local word = c.p.word
  if c.p.prefix == nil and word == nil then return nil end
  c.word = c.tvb:range(c.start + word.at, word.size):uint()
  local code = math.floor(c.word / 2 ^ word.shift)
  local found = c.p.frames[code]
  if found and found.variant and set(c.word, found.variant.flag) then found = found.variant end
  return found, found and found.name or string.format("0x%0" .. word.digits .. "X", code)
end

local function prefixed_frame(p, tvb, at, width, size, pinfo, root, client, shared)
  local c = reader(p, tvb, at + width, at + width + size, client, shared, pinfo)
  c.size = size
  local name, rules = nil, p.rules
  if size >= p.header then c.f, name = declared(c) end
  if c.f then c.flags = letters(c) end
  show(c, pinfo, root, at, width + size, name, function()
    if size < p.header then
      fail(rules.short, string.format("a frame of %d bytes: the header has %d", size, p.header))
    end
    if not c.f then
      local stream = tvb:range(c.start + p.stream.at, 4):uint()
      number(c, "stream", c.start + p.stream.at, 4, p.stream.bits == 31 and stream % 0x80000000 or stream)
      fail(rules.unknown, string.format("frame type %s is unknown", name))
    end
    fields(c)
    local rest = c.stop - c.at
    if rest > 0 and c.f.closed then fail(c.f.closed, string.format(c.f.follow, rest)) end
    if c.f.forbidden and set(c.word, c.f.forbidden.flag) then fail(c.f.forbidden.rule, c.f.forbidden.reason) end
  end)
end

-- One message of a protocol without a length. Returns its size, or what is wrong: then the next one cannot be found.
local function jmux_message(c, pinfo, root)
  if c.stop - c.at < 4 then error({ need = c.at + 4 }, 0) end
  local first = c.tvb:range(c.at, 1):uint()
  c.word = first
  c.f = c.p.frames[first]
  if not c.f then
    c.name = string.format("0x%02X", first)
    fail(c.p.rules.unknown, string.format("no message begins with 0x%02X", first))
  end
  c.open = true
  local good, wrong = pcall(fields, c)
  if not good and (type(wrong) ~= "table" or wrong.need) then error(wrong, 0) end
  c.open = false
  local size = 4 + (c.f.sized and c.tvb:range(c.start + 2, 2):uint() or 0)
  c.at, c.size, c.stop = c.start, size, c.start + size
  c.flags = letters(c)
  show(c, pinfo, root, c.start, size, c.f.name, function()
    fields(c)
    if c.f.shifts then number(c, "ration", c.start, size, c.n * 4 ^ math.floor(first % 16 / 2)) end
    local meaning = c.p.meanings[c.client and "client" or "server"][first]
    if meaning then fail(meaning[1], meaning[2]) end
  end)
  return size
end

local function jmux_header(c, pinfo, root)
  local header = c.p.connection[c.client and "client" or "server"]
  if c.stop - c.at < header.size then error({ need = c.at + header.size }, 0) end
  if c.tvb:range(c.at, 4):raw() ~= c.p.magic then fail(c.p.rules.header, "a connection begins with Jmux") end
  c.f, c.stop, c.size, c.flags = header.frame, c.at + header.size, header.size, ""
  local version, reserved = c.tvb:range(c.at + 4, 1):uint(), c.tvb:range(c.at + 7, 1):uint()
  show(c, pinfo, root, c.at, header.size, c.f.name, function()
    fields(c)
    if c.initial_ration > 0 then number(c, "ration", c.start + 5, 2, c.initial_ration * c.p.step) end
    if not header.right[version * 256 + reserved] then
      fail(c.p.rules.header, string.format("version %d or byte 7 (0x%02X) is not supported", version, reserved))
    end
  end)
  return header.size
end

local function jmux(c, pinfo, root)
  local began = c.shared.began
  local start = c.start == 0 and (began == nil or began == pinfo.number)
  if start and c.stop > c.at and c.tvb:range(c.at, 1):uint() == c.p.magic:byte() then
    local size = jmux_header(c, pinfo, root)
    c.shared.began = pinfo.number
    return size
  end
  local size = jmux_message(c, pinfo, root)
  c.shared.began = began or pinfo.number
  return size
end

local function rsio(c, pinfo, root)
  local code = varint(c)
  c.f = c.p.frames[code]
  if not c.f then
    c.name = string.format("0x%02X", code)
    fail(c.p.rules.unknown, string.format("a message of the unknown type %d", code))
  end
  local from = c.at
  fields(c) -- without showing: raises if bytes are missing or wrong
  local size = c.at - c.start
  c.at, c.size, c.flags = from, size, ""
  show(c, pinfo, root, c.start, size, c.f.name, fields)
  if not c.visited then
    if c.f.sets then c.sizes[tostring(c.id)] = c.element_size > 0 and c.element_size or nil end
    if c.f.forgets then c.sizes[tostring(c.id)] = nil end
  end
  return size
end

-- connections -----------------------------------------------------------------------------------------------------

local function connection()
  local number = tcp_stream()
  number = number and number.value or -1
  if not connections[number] then connections[number] = { seen = {} } end
  return connections[number]
end

local function source(pinfo) return tostring(pinfo.src) .. " " .. pinfo.src_port end

local function side(conn, pinfo)
  if ws_opcode() then
    local mask = ws_mask()
    return mask ~= nil and (mask.value == true or mask.value == 1)
  end
  if not conn.client then
    local server = pinfo.match == pinfo.src_port
    conn.client = server and tostring(pinfo.dst) .. " " .. pinfo.dst_port or source(pinfo)
  end
  return conn.client == source(pinfo)
end

local function direction(conn, client)
  local key = client and "up" or "down"
  if not conn[key] then conn[key] = { memo = {}, sizes = {} } end
  return conn[key]
end

local function stop(p, tvb, at, pinfo, root, client, shared, wrong, name)
  local c = reader(p, tvb, at, tvb:len(), client, shared, pinfo)
  show(c, pinfo, root, at, tvb:len() - at, name, function() error(wrong, 0) end)
  shared.over = shared.over or pinfo.number
end

local function more(pinfo, at, count)
  pinfo.desegment_offset = at
  pinfo.desegment_len = count
end

-- Read frames with a length from "at" on; returns where the rest begins, and the bytes it needs.
local function prefixed(p, tvb, pinfo, root, client, shared)
  local at, width, prefix = 0, p.prefix.width, p.prefix
  while at < tvb:len() do
    local left = tvb:len() - at
    if left < width then return more(pinfo, at, ONE_MORE) end
    local size = tvb:range(at, width):uint()
    if prefix.mask then size = size % prefix.mask end
    size = size - prefix.own
    if size < 0 or size > LARGEST then
      local reason = size < 0 and string.format("a length of %d is less than the %d bytes of its field", size + width, width)
        or string.format("a frame of %d bytes: more than %d are not shown", size, LARGEST)
      return stop(p, tvb, at, pinfo, root, client, shared, { rule = size < 0 and p.rules.size or "limit", reason = reason })
    end
    if left < width + size then return more(pinfo, at, width + size - left) end
    prefixed_frame(p, tvb, at, width, size, pinfo, root, client, shared)
    at = at + width + size
  end
end

local BARE = { jmux = jmux, rsio = rsio }

local function unprefixed(p, tvb, pinfo, root, client, shared, whole)
  local at = 0
  while at < tvb:len() do
    local c = reader(p, tvb, at, tvb:len(), client, shared, pinfo)
    local good, found = pcall(BARE[p.name], c, pinfo, root)
    if good then
      at = at + found
    elseif type(found) ~= "table" then
      error(found, 0)
    elseif found.need and not whole then
      local count = found.need - tvb:len()
      return more(pinfo, at, c.f and c.f.sized and count or ONE_MORE)
    else
      if found.need then found = { rule = "truncated", reason = "the message is cut off" } end
      return stop(p, tvb, at, pinfo, root, client, shared, found, c.f and c.f.name or c.name)
    end
  end
end

local afflux = Proto("afflux", "Reactive streams (afflux)")

function afflux.init() connections = {} end

function afflux.dissector() return 0 end

local function dissect(p, tvb, pinfo, root)
  local conn, message = connection(), ws_opcode() ~= nil
  local client = side(conn, pinfo)
  local shared = direction(conn, client)
  if shared.over and pinfo.number > shared.over then return 0 end
  pinfo.cols.protocol = p.name
  root:add(afflux, tvb()):set_hidden(true) -- so that the filter "afflux" finds the frames of every protocol
  shared.empty = true
  if not p.prefix then
    unprefixed(p, tvb, pinfo, root, client, shared, message)
  elseif message then
    prefixed_frame(p, tvb, 0, 0, tvb:len(), pinfo, root, client, shared)
  else
    prefixed(p, tvb, pinfo, root, client, shared)
  end
  return tvb:len()
end

-- recognition: the first bytes of a connection, as afflux recognizes a client ------------------------------------------

local function begins(data, code, shift)
  return data:sub(1, 4) == "\0\0\0\0" and #data >= 10 and math.floor(data:byte(5) / 2 ^ shift) == code
end

local RECOGNIZE = {
  rsocket = function(data, p)
    if begins(data, p.first.RESUME, 2) then return true end
    return begins(data, p.first.SETUP, 2) and (data:byte(7) > 0 or data:byte(10) < 0x20)
  end,
  limit = function(data, p)
    return begins(data, p.first.SETUP, 2) and data:byte(5) % 2 == 1 and data:byte(7) == 0 and data:byte(10) >= 0x20
  end,
  reactivesocket = function(data, p)
    return #data >= 8 and data:sub(1, 2) == string.char(0, p.first.SETUP) and data:sub(5, 8) == "\0\0\0\0"
  end,
  jmux = function(data, p) return data:sub(1, 4) == p.magic end,
  rsio = function(data) return data:sub(1, 2) == "\1\0" end,
}

local function recognized(tvb, message)
  local found, count = nil, 0
  for name, recognize in pairs(RECOGNIZE) do
    local p = PROTOCOLS[name]
    local at, whole = 0, tvb:len()
    if p.prefix and not message then
      at = p.prefix.width
      local size = whole >= at and tvb:range(0, at):uint() - p.prefix.own or 0
      if size <= 0 or size > FIRST then at = whole end
    end
    local data = at < whole and tvb:range(at, math.min(whole - at, 32)):raw() or ""
    if #data > 0 and recognize(data, p) then found, count = p, count + 1 end
  end
  return count == 1 and found or nil
end

-- Only the first bytes of a connection decide, as in afflux.
local function heuristic(tvb, pinfo, root)
  local conn = connection()
  local message = ws_opcode() ~= nil
  local key = message and "message" or "bytes"
  if conn.seen[key] == nil then conn.seen[key] = pinfo.number end
  if conn.seen[key] ~= pinfo.number then
    if conn.found and message then
      dissect(conn.found, tvb, pinfo, root)
      return true
    end
    return false
  end
  local p = recognized(tvb, message)
  if not p then return false end
  conn.found = p
  if not message then
    conn.client = source(pinfo)
    pinfo.conversation = p.proto
  end
  dissect(p, tvb, pinfo, root)
  return true
end

-- registration ------------------------------------------------------------------------------------------------------

local BASES = { uint64 = base.DEC, code = base.HEX }

for name, p in pairs(PROTOCOLS) do
  local prefix = "afflux." .. name
  p.name = name
  p.proto = Proto(prefix, p.title .. " (afflux)")
  p.fields = {}
  local listed = {}
  for key, field in pairs(p.declared) do
    local abbreviation = prefix .. "." .. key
    local made
    if field.type == "uint64" then
      made = ProtoField.uint64(abbreviation, key, key == "code" and BASES.code or BASES.uint64, nil, nil, field.doc)
    elseif field.type == "bytes" then
      made = ProtoField.bytes(abbreviation, key, base.NONE, field.doc)
    else
      made = ProtoField.string(abbreviation, key, base.UNICODE, field.doc)
    end
    p.fields[key] = made
    listed[#listed + 1] = made
  end
  p.proto.fields = listed
  p.expert = ProtoExpert.new(prefix .. ".malformed", "Malformed frame", expert.group.MALFORMED, expert.severity.ERROR)
  p.proto.experts = { p.expert }
  p.proto.dissector = function(tvb, pinfo, root) return dissect(p, tvb, pinfo, root) end
  DissectorTable.get("tcp.port"):add_for_decode_as(p.proto)
  if p.subprotocol then DissectorTable.get("ws.protocol"):add(p.subprotocol, p.proto) end
end

afflux:register_heuristic("tcp", heuristic)
afflux:register_heuristic("ws", heuristic)
