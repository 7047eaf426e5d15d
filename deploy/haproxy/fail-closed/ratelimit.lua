-- Asks the sidecar about one request, for `http-request lua.ratelimit` in haproxy.cfg.
--
-- A refusal is handed on as it came: status, headers, body. When the request may pass, the numbers that its
-- answer is to show are left in txn.answer_x_ratelimit_limit and so on, and txn.question is `allowed`; `gone`
-- when no sidecar answered; `begun` when it could not be asked.

-- The `listen` section that leads to the sidecar.
local DESTINATION = "abns@ratelimit-questions"
local URL = "http://sidecar/forward-auth"

-- What the sidecar may see of the request's headers. Each as often as it came: two values of one name say
-- nothing about who is calling, the last one alone would.
local PASSED = {
    "x-request-id",
    "x-session-id",
    "cookie",
    "user-agent",
    "x-api-key",
    "x-user-id",
    "x-jwt-payload",
}

-- HAProxy's HTTP client breaks (2.6: with the whole process) on a question of more lines than tune.http.maxhdr.
local MOST_LINES = 256

-- What the answer to an allowed request shows.
local NUMBERS = {
    "x-ratelimit-limit",
    "x-ratelimit-remaining",
    "x-ratelimit-reset",
    "x-ratelimit-degraded",
}

-- Of a refusal, what is about its way from the sidecar to here.
local NOT_HANDED_ON = {
    ["connection"] = true, ["keep-alive"] = true, ["transfer-encoding"] = true, ["content-length"] = true,
    ["server"] = true,
}

-- All lines of a header; HAProxy counts them from 0.
local function lines(header)
    local found = {}
    for index = 0, #header do
        found[#found + 1] = header[index]
    end
    return found
end

-- `OPTIONS *` has no path, and is itself what was asked for.
local function target(txn)
    local path = txn.sf:pathq()
    return path ~= "" and path or txn.sf:url()
end

-- The headers of the question; nil if they are too many.
local function question(txn)
    local headers = txn.http:req_get_headers()
    local asked = {
        -- Without one, HAProxy would say that it is HAProxy who calls.
        ["user-agent"] = { "" },
    }
    local count = 0
    for _, name in ipairs(PASSED) do
        if headers[name] then
            asked[name] = lines(headers[name])
            count = count + #asked[name]
        end
    end
    if count > MOST_LINES then
        return nil
    end
    -- Last, so that nothing above is taken for one of these.
    asked["x-forwarded-method"] = { txn.sf:method() }
    asked["x-forwarded-uri"] = { target(txn) }
    asked["x-forwarded-host"] = { txn.sf:req_fhdr("host") }
    asked["x-client-ip"] = { txn.sf:src() }
    return asked
end

local function remember_numbers(txn, headers)
    for _, name in ipairs(NUMBERS) do
        if headers[name] then
            txn:set_var("txn.answer_" .. name:gsub("-", "_"), headers[name][0])
        end
    end
end

local function refuse(txn, answer)
    local reply = txn:reply({ status = answer.status })
    for name, header in pairs(answer.headers) do
        if not NOT_HANDED_ON[name] then
            for _, value in ipairs(lines(header)) do
                reply:add_header(name, value)
            end
        end
    end
    reply:set_body(answer.body)
    txn:done(reply)
end

-- The sidecar gives its name in every answer; a 5xx without it is HAProxy's, or of something that broke. (A 503
-- of the sidecar's own is the answer of a rule that refuses while nothing can be counted.)
local function is_sidecars(answer)
    local server = answer.headers and answer.headers["server"]
    return server ~= nil and server[0] == "sidecar"
end

core.register_action("ratelimit", { "http-req" }, function(txn)
    txn:set_var("txn.question", "begun")
    local headers = question(txn)
    if not headers then
        return
    end
    local answer = core.httpclient():get({ url = URL, dst = DESTINATION, headers = headers })
    if is_sidecars(answer) then
        if answer.status ~= 200 then
            return refuse(txn, answer)
        end
        remember_numbers(txn, answer.headers)
        txn:set_var("txn.question", "allowed")
    elseif answer.status and answer.status >= 500 then
        txn:set_var("txn.question", "gone")
    end
end, 0)
