// The HTTP server over real sockets: what one well- or ill-behaved client sees.
// SPDX-License-Identifier: Apache-2.0
#include <zlib.h>

#include "tests/api_server/http_server_fixture.h"

namespace sysone {
namespace {

std::string GzipOf(std::string_view plain) {
  z_stream stream{};
  SYSONE_CHECK(deflateInit2(&stream, 9, Z_DEFLATED, 31, 8, Z_DEFAULT_STRATEGY) == Z_OK,
               "deflateInit2");
  std::string out(deflateBound(&stream, plain.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(plain.data()));
  stream.avail_in = static_cast<uInt>(plain.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  SYSONE_CHECK(deflate(&stream, Z_FINISH) == Z_STREAM_END, "deflate");
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

using HttpServerProtocol = HttpServerTest;

TEST_F(HttpServerProtocol, HandsPathQueryAndBodyToTheHandler) {
  Start();
  TestClient client = Connect();
  const ClientResponse response = client.Ask(Post("/a%20b/c?x=%31&y", "hello"));
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.reason, "OK");
  EXPECT_EQ(response.body, "POST /a b/c?x=%31&y hello");
  EXPECT_EQ(response.Header("Content-Type"), "text/plain");
  EXPECT_EQ(response.headers.Count("Content-Length"), 1u);
  EXPECT_EQ(response.headers.Count("Date"), 1u);
}

TEST_F(HttpServerProtocol, KeepsTheConnectionForFurtherRequests) {
  Start();
  TestClient client = Connect();
  for (int i = 0; i < 5; ++i) {
    const ClientResponse response = client.Ask(Post("/", std::to_string(i)));
    ASSERT_EQ(response.body, "POST /? " + std::to_string(i));
    EXPECT_EQ(response.Header("Connection"), "");
  }
  EXPECT_EQ(server_->stats().connections_accepted, 1u);
  EXPECT_EQ(server_->stats().requests_received, 5u);
}

TEST_F(HttpServerProtocol, KeepsTheConnectionAfterAnErrorOfTheHandler) {
  Start([](const HttpRequest&) { return HttpResponse{422, {}, "{}"}; });
  TestClient client = Connect();
  EXPECT_EQ(client.Ask(Post("/", "{}")).status, 422);
  EXPECT_EQ(client.Ask(Post("/", "{}")).status, 422);
}

TEST_F(HttpServerProtocol, AnswersPipelinedRequestsInOrder) {
  Start();
  TestClient client = Connect();
  std::string all;
  for (int i = 0; i < 100; ++i)
    all += Post("/" + std::to_string(i), std::string(static_cast<size_t>(i), 'x'));
  client.Send(all);
  for (int i = 0; i < 100; ++i)
    ASSERT_EQ(client.Read().body,
              "POST /" + std::to_string(i) + "? " + std::string(static_cast<size_t>(i), 'x'));
}

TEST_F(HttpServerProtocol, AnswersARequestThatComesByteByByte) {
  Start();
  TestClient client = Connect();
  for (const char c : Post("/drip", "body")) client.Send(std::string_view(&c, 1));
  EXPECT_EQ(client.Read().body, "POST /drip? body");
}

TEST_F(HttpServerProtocol, ClosesWhenAskedTo) {
  Start();
  TestClient client = Connect();
  EXPECT_EQ(client.Ask(Get("/", "Connection: foo, Close\r\n")).Header("Connection"), "close");
  EXPECT_TRUE(client.AtEnd());
}

TEST_F(HttpServerProtocol, ClosesAfterHttp10UnlessItAsksForMore) {
  Start();
  TestClient once = Connect();
  EXPECT_EQ(once.Ask("GET /old HTTP/1.0\r\n\r\n").body, "GET /old? ");
  EXPECT_TRUE(once.AtEnd());
  TestClient more = Connect();
  EXPECT_EQ(more.Ask("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n").Header("Connection"),
            "keep-alive");
  EXPECT_EQ(more.Ask("GET /again HTTP/1.0\r\n\r\n").body, "GET /again? ");
}

TEST_F(HttpServerProtocol, AnswersHeadWithTheLengthAndNoBody) {
  Start();
  TestClient client = Connect();
  client.Send("HEAD /x HTTP/1.1\r\nHost: test\r\n\r\n");
  const ClientResponse head = client.Read(true);
  EXPECT_EQ(head.status, 200);
  EXPECT_EQ(head.Header("Content-Length"), std::to_string(std::string("HEAD /x? ").size()));
  EXPECT_EQ(client.Ask(Get("/next")).body, "GET /next? ");  // nothing was left in between
}

TEST_F(HttpServerProtocol, WritesNeitherBodyNorLengthWith204) {
  Start([](const HttpRequest&) { return HttpResponse{204, {}, "ignored"}; });
  TestClient client = Connect();
  const ClientResponse response = client.Ask(Get("/"));
  EXPECT_EQ(response.status, 204);
  EXPECT_EQ(response.headers.Count("Content-Length"), 0u);
  EXPECT_EQ(client.Ask(Get("/")).status, 204);
}

TEST_F(HttpServerProtocol, TellsAWaitingClientToContinue) {
  Start();
  TestClient client = Connect();
  client.Send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(client.Read(true).status, 100);
  EXPECT_EQ(client.Ask("body").body, "POST /? body");
}

TEST_F(HttpServerProtocol, RefusesATooLargeBodyInsteadOfContinuing) {
  limits_.max_request_bytes = 3;
  Start();
  TestClient client = Connect();
  EXPECT_EQ(
      client.Ask("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n")
          .status,
      413);
}

TEST_F(HttpServerProtocol, TakesTheChunksOffABody) {
  Start();
  TestClient client = Connect();
  client.Send("POST /c HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n\r\n");
  client.Send("3;ext=\"1\"\r\nabc\r\n0A\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\n" + Get("/next"));
  EXPECT_EQ(client.Read().body, "POST /c? abc0123456789");
  EXPECT_EQ(client.Read().body, "GET /next? ");
}

TEST_F(HttpServerProtocol, RefusesBodiesOverTheLimitWithoutReadingThem) {
  limits_.max_request_bytes = 1000;
  Start();
  for (const std::string framing :
       {"Content-Length: 1001\r\n\r\n", "Content-Length: 99999999999999999999999\r\n\r\n",
        "Transfer-Encoding: chunked\r\n\r\n3E9\r\n",
        "Transfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFF\r\n"}) {
    TestClient client = Connect();
    const ClientResponse response = client.Ask("POST /big HTTP/1.1\r\nHost: a\r\n" + framing);
    EXPECT_EQ(response.status, 413) << framing;
    EXPECT_NE(response.body.find(R"("path":"/big")"), std::string::npos) << framing;
    EXPECT_EQ(response.Header("Connection"), "close");
  }
  TestClient client = Connect();
  EXPECT_EQ(client.Ask(Post("/", std::string(1000, 'x'))).status, 200);
}

TEST_F(HttpServerProtocol, LetsAClientThatIsStillUploadingSeeThe413) {
  limits_.max_request_bytes = 1000;
  Start();
  TestClient client = Connect();
  EXPECT_TRUE(client.Send(Post("/", std::string(4u << 20, 'x'))));
  EXPECT_EQ(client.Read().status, 413);
}

TEST_F(HttpServerProtocol, InflatesGzipBodies) {
  Start();
  TestClient client = Connect();
  EXPECT_EQ(client.Ask(Post("/", GzipOf("plain text"), "Content-Encoding: GZIP\r\n")).body,
            "POST /? plain text");
  EXPECT_EQ(client.Ask(Post("/", "as is", "Content-Encoding: identity\r\n")).body, "POST /? as is");
}

TEST_F(HttpServerProtocol, RefusesGzipThatExplodes) {
  limits_.max_inflated_bytes = 1u << 20;
  Start();
  TestClient client = Connect();
  const std::string bomb = GzipOf(std::string(64u << 20, '\0'));
  ASSERT_LT(bomb.size(), 100'000u);
  EXPECT_EQ(client.Ask(Post("/", bomb, "Content-Encoding: gzip\r\n")).status, 413);
  EXPECT_EQ(client.Ask(Post("/", GzipOf(std::string(1u << 20, 'x')), "Content-Encoding: gzip\r\n"))
                .status,
            200);
}

TEST_F(HttpServerProtocol, RefusesDamagedGzipAndOtherEncodings) {
  Start();
  TestClient client = Connect();
  const std::string good = GzipOf("plain text, long enough to be cut");
  std::string flipped = good;
  flipped[flipped.size() - 6] ^= 1;  // in the checksum
  for (const std::string& bad :
       {std::string("no gzip"), good.substr(0, good.size() - 1), flipped, good + "x"})
    EXPECT_EQ(client.Ask(Post("/", bad, "Content-Encoding: gzip\r\n")).status, 400) << bad.size();
  for (const char* other : {"br", "deflate", "gzip, gzip", "gzip\r\nContent-Encoding: gzip"})
    EXPECT_EQ(
        client.Ask(Post("/", good, std::string("Content-Encoding: ") + other + "\r\n")).status, 415)
        << other;
}

TEST_F(HttpServerProtocol, AnswersRequestsThatEndEarly) {
  Start();
  for (const std::string part :
       {"GET / HT", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nbody"}) {
    TestClient client = Connect();
    client.Send(part);
    client.HalfClose();
    EXPECT_EQ(client.Read().status, 400) << part;
    EXPECT_TRUE(client.AtEnd());
  }
}

TEST_F(HttpServerProtocol, AnswersAClientThatHasClosedItsSendingSide) {
  Start();
  TestClient client = Connect();
  client.Send(Get("/last"));
  client.HalfClose();
  EXPECT_EQ(client.Read().body, "GET /last? ");
  EXPECT_TRUE(client.AtEnd());
}

TEST_F(HttpServerProtocol, WritesNoHeaderThatWouldSplitTheResponse) {
  Start([](const HttpRequest&) {
    HttpResponse response;
    response.headers.Add("X-Good", "1");
    response.headers.Add("X-Bad", "1\r\nX-Injected: 1");
    response.headers.Add("X-Bad\r\nX-Injected", "1");
    return response;
  });
  TestClient client = Connect();
  const ClientResponse response = client.Ask(Get("/"));
  EXPECT_EQ(response.Header("X-Good"), "1");
  EXPECT_EQ(response.headers.Count("X-Injected"), 0u);
}

TEST_F(HttpServerProtocol, IgnoresHeadersThatTheLibraryWouldActOn) {
  Start();
  TestClient client = Connect();
  for (const std::string extra : {"Range: bytes=0-1\r\n", "Range: nonsense\r\n",
                                  "Accept: ;;;q=\r\n", "If-Match: x\r\n", "Expect: else\r\n",
                                  "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: "
                                  "AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n"}) {
    const ClientResponse response = client.Ask(Get("/plain", extra));
    EXPECT_EQ(response.status, 200) << extra;
    EXPECT_EQ(response.body, "GET /plain? ") << extra;
  }
}

// Raw heads that must end in a 4xx and a closed connection, never in a crash or a second request.
struct BadHead {
  const char* name;
  std::string bytes;
  int status;
};

class HttpServerBadHead : public HttpServerTest, public ::testing::WithParamInterface<BadHead> {};

TEST_P(HttpServerBadHead, IsRefusedAndTheConnectionEnds) {
  Start([](const HttpRequest& request) {
    ADD_FAILURE() << "the handler saw " << request.method << " " << request.path;
    return HttpResponse{};
  });
  TestClient client = Connect();
  const ClientResponse response = client.Ask(GetParam().bytes);
  EXPECT_EQ(response.status, GetParam().status);
  EXPECT_TRUE(response.body.starts_with("{")) << response.body;
  EXPECT_EQ(response.Header("Connection"), "close");
  client.HalfClose();
  EXPECT_TRUE(client.AtEnd());
}

std::string Head(std::string_view fields, std::string_view line = "POST / HTTP/1.1") {
  return std::string(line) + "\r\nHost: a\r\n" + std::string(fields) + "\r\n";
}

const std::string kSmuggled = "0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";

INSTANTIATE_TEST_SUITE_P(
    All, HttpServerBadHead,
    ::testing::ValuesIn(std::vector<BadHead>{
        {"NoHttp", "hello\r\n\r\n", 400},
        {"TlsHello", std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\n", 12), 400},
        {"Http09", "GET /\r\n\r\n", 400},
        {"Http2Preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400},
        {"WrongVersion", Head("", "GET / HTTP/1.2"), 400},
        {"LowerCaseProtocol", Head("", "GET / http/1.1"), 400},
        {"BadMethod", Head("", "G(T / HTTP/1.1"), 400},
        {"LongMethod", Head("", std::string(40, 'A') + " / HTTP/1.1"), 400},
        {"NoTarget", Head("", "GET  HTTP/1.1"), 400},
        {"BlankInTarget", Head("", "GET /a b HTTP/1.1"), 400},
        {"TargetWithoutSlash", Head("", "GET a HTTP/1.1"), 400},
        {"FragmentInTarget", Head("", "GET /a#b HTTP/1.1"), 400},
        {"CarriageReturnInTarget", Head("", "GET /a\rb HTTP/1.1"), 400},
        {"ControlInTarget", Head("", "GET /a\x01 HTTP/1.1"), 400},
        {"RawUnicodeTarget", Head("", "GET /\xc3\xa4 HTTP/1.1"), 400},
        {"NulInTarget", std::string("GET /\0 HTTP/1.1\r\nHost: a\r\n\r\n", 29), 400},
        {"NulInHeader", std::string("GET / HTTP/1.1\r\nHost: a\0\r\n\r\n", 29), 400},
        {"BareLineFeeds", "GET / HTTP/1.1\nHost: a\n\n", 400},
        {"BareCarriageReturn", Head("X: a\rb\r\n"), 400},
        {"LongTarget", Head("", "GET /" + std::string(9000, 'a') + " HTTP/1.1"), 414},
        {"EndlessTarget", "GET /" + std::string(40000, 'a'), 414},
        {"LongHeader", Head("X: " + std::string(9000, 'a') + "\r\n"), 431},
        {"EndlessHeaders", "GET / HTTP/1.1\r\nX: " + std::string(40000, 'a'), 431},
        {"ManyHeaders", Head([] {
           std::string fields;
           for (int i = 0; i < 101; ++i) fields += "X: a\r\n";
           return fields;
         }()),
         431},
        {"NoHost", "GET / HTTP/1.1\r\n\r\n", 400},
        {"TwoHosts", Head("Host: b\r\n"), 400},
        {"FoldedHeader", Head("X: a\r\n b\r\n"), 400},
        {"BlankBeforeColon", Head("Content-Length : 5\r\n"), 400},
        {"NoColon", Head("X\r\n"), 400},
        {"NoName", Head(": x\r\n"), 400},
        {"ControlInValue", Head("X: a\x02\r\n"), 400},
        {"NegativeLength", Head("Content-Length: -1\r\n"), 400},
        {"SignedLength", Head("Content-Length: +1\r\n"), 400},
        {"HexLength", Head("Content-Length: 0x10\r\n"), 400},
        {"EmptyLength", Head("Content-Length:\r\n"), 400},
        {"LengthList", Head("Content-Length: 5, 5\r\n"), 400},
        {"TwoLengths", Head("Content-Length: 5\r\nContent-Length: 5\r\n"), 400},
        {"TwoDifferentLengths", Head("Content-Length: 5\r\nContent-Length: 6\r\n"), 400},
        {"LengthAndChunked",
         Head("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n") + kSmuggled, 400},
        {"ZeroLengthAndChunked",
         Head("Content-Length: 0\r\nTransfer-Encoding: chunked\r\n") + kSmuggled, 400},
        {"ChunkedNotLast", Head("Transfer-Encoding: chunked, identity\r\n") + kSmuggled, 400},
        {"TwoCodings", Head("Transfer-Encoding: gzip, chunked\r\n") + kSmuggled, 400},
        {"ChunkedTwice",
         Head("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n") + kSmuggled, 400},
        {"ObscureCoding", Head("Transfer-Encoding: xchunked\r\n") + kSmuggled, 400},
        {"ChunkedInHttp10", Head("Transfer-Encoding: chunked\r\n", "POST / HTTP/1.0") + kSmuggled,
         400},
        {"ChunkSizeNoDigits", Head("Transfer-Encoding: chunked\r\n") + "\r\n", 400},
        {"ChunkSizeSigned", Head("Transfer-Encoding: chunked\r\n") + "-1\r\n", 400},
        {"ChunkSizePrefixed", Head("Transfer-Encoding: chunked\r\n") + "0x1\r\n", 400},
        {"ChunkSizeThenBlank", Head("Transfer-Encoding: chunked\r\n") + "1 \r\na\r\n0\r\n\r\n",
         400},
        {"ChunkSizeOverflow", Head("Transfer-Encoding: chunked\r\n") + "10000000000000001\r\n",
         400},
        {"ChunkLineFeedOnly", Head("Transfer-Encoding: chunked\r\n") + "1\na\r\n0\r\n\r\n", 400},
        {"ChunkTooLong", Head("Transfer-Encoding: chunked\r\n") + "1\r\nab\r\n0\r\n\r\n", 400},
        {"ChunkEndlessExtension",
         Head("Transfer-Encoding: chunked\r\n") + "1;" + std::string(1000, 'a'), 400},
        {"EndlessTrailers",
         Head("Transfer-Encoding: chunked\r\n") + "0\r\n" +
             [] {
               std::string fields;
               for (int i = 0; i < 2000; ++i) fields += "X: abcd\r\n";
               return fields;
             }(),
         400},
    }),
    [](const auto& param) { return param.param.name; });

}  // namespace
}  // namespace sysone
