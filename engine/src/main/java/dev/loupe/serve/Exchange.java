package dev.loupe.serve;

import static java.nio.charset.StandardCharsets.UTF_8;

import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import com.google.gson.JsonElement;
import io.netty.buffer.Unpooled;
import io.netty.channel.ChannelFuture;
import io.netty.channel.ChannelFutureListener;
import io.netty.channel.ChannelHandlerContext;
import io.netty.handler.codec.http.DefaultFullHttpResponse;
import io.netty.handler.codec.http.DefaultHttpContent;
import io.netty.handler.codec.http.DefaultHttpResponse;
import io.netty.handler.codec.http.FullHttpRequest;
import io.netty.handler.codec.http.FullHttpResponse;
import io.netty.handler.codec.http.HttpHeaderNames;
import io.netty.handler.codec.http.HttpHeaderValues;
import io.netty.handler.codec.http.HttpHeaders;
import io.netty.handler.codec.http.HttpResponse;
import io.netty.handler.codec.http.HttpResponseStatus;
import io.netty.handler.codec.http.HttpUtil;
import io.netty.handler.codec.http.HttpVersion;
import io.netty.handler.codec.http.LastHttpContent;
import io.netty.handler.codec.http.QueryStringDecoder;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/**
 * One request and its answer, for a handler that blocks: the thread that answers is interrupted
 * when the client goes away or the server closes. What is sent to a client that is gone is dropped.
 */
final class Exchange {
  static final Gson GSON = new GsonBuilder().serializeNulls().disableHtmlEscaping().create();

  /** How long a run waits for a reader that is behind. */
  private static final Duration MOST_BEHIND = Duration.ofSeconds(2);

  private final ChannelHandlerContext channel;
  private final Connection connection;
  private final String method;
  private final String path;
  private final Map<String, List<String>> query;
  private final HttpHeaders headers;
  private final byte[] body;
  private final boolean keepAlive;
  private final HttpVersion version;
  private @Nullable Thread answering;
  private volatile boolean cancelled;
  private int status; // 0 until an answer has begun

  /** Copies what it needs of {@code request}. */
  Exchange(ChannelHandlerContext channel, Connection connection, FullHttpRequest request) {
    this.channel = channel;
    this.connection = connection;
    method = request.method().name();
    String uri = request.uri();
    int end = uri.indexOf('?');
    path = end < 0 ? uri : uri.substring(0, end);
    query = end < 0 ? Map.of() : parameters(uri);
    headers = request.headers().copy();
    body = new byte[request.content().readableBytes()];
    request.content().getBytes(request.content().readerIndex(), body);
    keepAlive = HttpUtil.isKeepAlive(request);
    version = request.protocolVersion();
  }

  /** Those of a query that can be read; of one that can't, none. */
  private static Map<String, List<String>> parameters(String uri) {
    try {
      return new QueryStringDecoder(uri).parameters();
    } catch (IllegalArgumentException e) {
      return Map.of();
    }
  }

  String method() {
    return method;
  }

  /** The value of a parameter of the query, null if it is absent; of several the first. */
  @Nullable String parameter(String name) {
    List<String> values = query.get(name);
    return values == null ? null : values.getFirst();
  }

  /** What was asked for, without a query. */
  String path() {
    return path;
  }

  List<String> headers(String name) {
    return headers.getAll(name);
  }

  byte[] body() {
    return body;
  }

  /** From here on this thread answers. */
  synchronized void take() {
    answering = Thread.currentThread();
    if (cancelled) {
      answering.interrupt();
    }
  }

  /** This thread has answered, and goes on to other things. */
  synchronized void release() {
    answering = null;
    boolean _ = Thread.interrupted();
  }

  /** Interrupts whoever answers; what is there by then is still sent. */
  synchronized void cancel() {
    cancelled = true;
    if (answering != null) {
      answering.interrupt();
    }
  }

  /** Whether the answer is no longer wanted, or no longer in full. */
  boolean isCancelled() {
    return cancelled;
  }

  /** Whether the client is there. */
  boolean isConnected() {
    return channel.channel().isActive();
  }

  /** Status of the answer, 0 before there is one. */
  int status() {
    return status;
  }

  void send(int code, JsonElement json) {
    send(code, "application/json", GSON.toJson(json), Map.of());
  }

  /** Answers with an error; where an answer has begun, as its last event. */
  void send(ApiException error, Map<String, String> more) {
    if (status != 0) {
      event(GSON.toJson(error.json()));
      endEvents();
      return;
    }
    send(error.status(), "application/json", GSON.toJson(error.json()), more);
  }

  /** Answers with {@code text}, whole. */
  void send(int code, String type, String text, Map<String, String> more) {
    send(code, type + "; charset=utf-8", text.getBytes(UTF_8), more);
  }

  /** Answers with {@code content}, whole. */
  void send(int code, String type, byte[] content, Map<String, String> more) {
    FullHttpResponse response = whole(code, type, content);
    more.forEach((name, value) -> response.headers().set(name, value));
    begin(response);
    end(response);
  }

  /** The answer to a request that never became whole. */
  static FullHttpResponse whole(ApiException error) {
    return whole(
        error.status(),
        "application/json; charset=utf-8",
        GSON.toJson(error.json()).getBytes(UTF_8));
  }

  private static FullHttpResponse whole(int code, String type, byte[] content) {
    FullHttpResponse response =
        new DefaultFullHttpResponse(
            HttpVersion.HTTP_1_1,
            HttpResponseStatus.valueOf(code),
            Unpooled.wrappedBuffer(content));
    HttpUtil.setContentLength(response, response.content().readableBytes());
    return typed(response, type);
  }

  private static <R extends HttpResponse> R typed(R response, String type) {
    HttpHeaders headers = response.headers();
    headers.set(HttpHeaderNames.CONTENT_TYPE, type);
    headers.set(HttpHeaderNames.CACHE_CONTROL, HttpHeaderValues.NO_STORE);
    headers.set("x-content-type-options", "nosniff");
    return response;
  }

  /** Begins a stream of server-sent events (WHATWG HTML, section 9.2). */
  void beginEvents() {
    HttpResponse response = new DefaultHttpResponse(HttpVersion.HTTP_1_1, HttpResponseStatus.OK);
    if (version.equals(HttpVersion.HTTP_1_1)) {
      HttpUtil.setTransferEncodingChunked(response, true);
    }
    begin(typed(response, "text/event-stream; charset=utf-8"));
    ChannelFuture _ = channel.writeAndFlush(response);
  }

  /**
   * Sends one event; {@code data} is one line. A reader that is behind is waited for a moment, and
   * its connection closed if that does not help: what waits for it has a bound.
   */
  void event(String data) {
    if (!waitForReader()) {
      ChannelFuture _ = channel.close();
      return;
    }
    String event = "data: " + data + "\n\n";
    ChannelFuture _ =
        channel.writeAndFlush(
            new DefaultHttpContent(Unpooled.wrappedBuffer(event.getBytes(UTF_8))));
  }

  private boolean waitForReader() {
    long start = System.nanoTime();
    while (!channel.channel().isWritable()) {
      if (!isConnected() || System.nanoTime() - start > MOST_BEHIND.toNanos()) {
        return false;
      }
      try {
        Thread.sleep(2);
      } catch (InterruptedException e) {
        Thread.currentThread().interrupt();
        return false;
      }
    }
    return true;
  }

  void endEvents() {
    end(LastHttpContent.EMPTY_LAST_CONTENT);
  }

  private void begin(HttpResponse response) {
    status = response.status().code();
    if (!mayGoOn()) {
      response.headers().set(HttpHeaderNames.CONNECTION, HttpHeaderValues.CLOSE);
    }
  }

  private boolean mayGoOn() {
    return keepAlive && version.equals(HttpVersion.HTTP_1_1) && connection.mayGoOn();
  }

  private void end(Object last) {
    channel
        .executor()
        .execute(
            () -> {
              boolean goesOn = mayGoOn();
              connection.answered(channel);
              channel
                  .writeAndFlush(last)
                  .addListener(
                      goesOn
                          ? ChannelFutureListener.CLOSE_ON_FAILURE
                          : ChannelFutureListener.CLOSE);
            });
  }
}
