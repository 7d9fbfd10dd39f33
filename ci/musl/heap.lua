-- What a Lua program does to a heap: trees, strings, tables that grow, coroutines. Prints sums.
local function tree(depth)
    return depth == 0 and {} or { tree(depth - 1), tree(depth - 1) }
end
local function count(node)
    return node[1] and 1 + count(node[1]) + count(node[2]) or 1
end
local nodes = 0
for depth = 4, 14 do nodes = nodes + count(tree(depth)) end
print(nodes)

local words, length = {}, 0
for i = 1, 100000 do words[i] = ("word %d"):format(i):rep(1 + i % 7, ",") end
for _, word in ipairs(words) do length = length + #word:gsub("%d", "") end
print(length, #table.concat(words))

local steps = 0
for i = 1, 20000 do
    local run = coroutine.wrap(function(...)
        for k = 1, select("#", ...) do coroutine.yield(k) end
        return 0
    end)
    while run(i, i, i) > 0 do steps = steps + 1 end
end
print(steps)

local lines = 0
for line in io.lines("/proc/self/maps") do lines = lines + (line ~= "" and 1 or 0) end
print(lines > 0)
