-- A router takes messages off the submit queue, as many as are there.
-- KEYS 1 submit queue, 2 router's taken list
-- ARGV 1 most to take
-- Returns the items, next first.
-- Atomic, so that an item is always on one of the two lists: a router that is killed loses none.
local items = {}
for n = 1, ARGV[1] do
    local item = redis.call('LMOVE', KEYS[1], KEYS[2], 'RIGHT', 'LEFT')
    if not item then break end
    items[n] = item
end
return items
