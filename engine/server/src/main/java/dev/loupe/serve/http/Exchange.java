package dev.loupe.serve.http;

import static java.nio.charset.StandardCharsets.UTF_8;

import com.google.gson.JsonElement;
import io.netty.buffer.Unpooled;
import io.netty.channel.ChannelFuture;
import io.netty.channel.ChannelFutureListener;
import io.netty.channel.ChannelHandlerContext;
import io.netty.handler.codec.http.DefaultFullHttpResponse;
import io.netty.handler.codec.http.DefaultHttpContent;
import io.netty.handler.codec.http.DefaultHttpResponse;
import io.netty.handler.codec.http.FullHttpResponse;
import io.netty.handler.codec.http.HttpHeaderNames;
import io.netty.handler.codec.http.HttpHeaderValues;
import io.netty.handler.codec.http.HttpHeaders;
import io.netty.handler.codec.http.HttpResponse;
import io.netty.handler.codec.http.HttpResponseStatus;
import io.netty.handler.codec.http.HttpUtil;
import io.netty.handler.codec.http.HttpVersion;
import io.netty.handler.codec.http.LastHttpContent;
import java.io.ByteArrayInputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.time.Duration;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/**
 * One request and its answer, for a handler that blocks: the thread that answers is interrupted
 * when the client goes away or the server closes. What is sent to a client that is gone is dropped.
 */
public final class Exchange {
  /** Bytes that are sent at a time; an answer that has no more is sent without waiting. */
  public static final int PIECE = 16 << 10;

  /** How long a run waits for a reader that is behind. */
  private static final Duration MOST_BEHIND = Duration.ofSeconds(2);

  /** How long a reader may take nothing while others wait for room in the outbox. */
  private static final Duration MOST_IN_THE_WAY = Duration.ofSeconds(5);

  private final ChannelHandlerContext channel;
  private final Connection connection;
  private final Request request;
  private @Nullable Thread answering;
  private volatile boolean cancelled;
  private @Nullable Outbox outbox; // that this answer has a share of
  private Outbox.@Nullable Share share;
  private boolean events; // have begun
  private int status; // 0 until an answer has begun

  Exchange(ChannelHandlerContext channel, Connection connection, Request request) {
    this.channel = channel;
    this.connection = connection;
    this.request = request;
  }

  public Request request() {
    return request;
  }

  /** From here on this thread answers. */
  public synchronized void take() {
    answering = Thread.currentThread();
    if (cancelled) {
      answering.interrupt();
    }
  }

  /** This thread has answered, and goes on to other things. */
  public synchronized void release() {
    answering = null;
    if (share != null) {
      share.close();
      share = null;
    }
    boolean _ = Thread.interrupted();
  }

  /**
   * Asks for room for a large answer, before it is made; it is given back when the answer is sent.
   *
   * @param bytes about how many it will have
   * @param deadline of System.nanoTime
   * @throws InterruptedException if the client goes away before
   * @throws ApiException if there is no room in time
   */
  public void reserve(Outbox from, long bytes, long deadline) throws InterruptedException {
    if (bytes > PIECE) {
      Outbox.Share taken = from.share(bytes, deadline);
      synchronized (this) {
        outbox = from;
        share = taken;
      }
    }
  }

  /** Interrupts whoever answers; what is there by then is still sent. */
  public synchronized void cancel() {
    cancelled = true;
    if (answering != null) {
      answering.interrupt();
    }
  }

  /** Whether the answer is no longer wanted, or no longer in full. */
  public boolean isCancelled() {
    return cancelled;
  }

  /** Whether the client is there. */
  public boolean isConnected() {
    return channel.channel().isActive();
  }

  /** Status of the answer, 0 before there is one. */
  public int status() {
    return status;
  }

  public void send(int code, JsonElement json) {
    send(code, "application/json", json.toString(), Map.of());
  }

  /** Answers with an error; where an answer has begun, as its last event. */
  public void send(ApiException error, Map<String, String> more) {
    if (events) {
      event(error.json().toString());
      endEvents();
      return;
    }
    if (status != 0) { // amid an answer of another kind: that it is cut is all that can be said
      ChannelFuture _ = channel.close();
      return;
    }
    send(error.status(), "application/json", error.json().toString(), more);
  }

  /** Answers with {@code text}, whole. */
  public void send(int code, String type, String text, Map<String, String> more) {
    send(code, type + "; charset=utf-8", text.getBytes(UTF_8), more);
  }

  /** Answers with {@code content}, whole. */
  public void send(int code, String type, byte[] content, Map<String, String> more) {
    if (content.length > PIECE) {
      try {
        send(code, type, content.length, new ByteArrayInputStream(content), more);
      } catch (IOException e) {
        throw new UncheckedIOException(e); // of an array there is none
      }
      return;
    }
    FullHttpResponse response = whole(code, type, content);
    more.forEach((name, value) -> response.headers().set(name, value));
    begin(response);
    end(response);
  }

  /**
   * Answers with {@code length} bytes piece by piece, as the client takes them. One that takes
   * nothing for a time is left.
   *
   * @throws IOException if {@code content} can't be read, or has less; the client sees that the
   *     answer is cut
   */
  public void send(
      int code, String type, long length, InputStream content, Map<String, String> more)
      throws IOException {
    if (share != null) {
      share.shrink(length);
    }
    HttpResponse response =
        typed(
            new DefaultHttpResponse(HttpVersion.HTTP_1_1, HttpResponseStatus.valueOf(code)), type);
    HttpUtil.setContentLength(response, length);
    more.forEach((name, value) -> response.headers().set(name, value));
    begin(response);
    ChannelFuture _ = channel.write(response);
    for (long sent = 0; sent < length; ) {
      byte[] piece = content.readNBytes((int) Math.min(PIECE, length - sent));
      if (piece.length == 0 || !waitForReader(true)) {
        ChannelFuture _ = channel.close();
        if (piece.length == 0) {
          throw new EOFException("%d of %d bytes".formatted(sent, length));
        }
        return;
      }
      sent += piece.length;
      ChannelFuture _ =
          channel.writeAndFlush(new DefaultHttpContent(Unpooled.wrappedBuffer(piece)));
    }
    end(LastHttpContent.EMPTY_LAST_CONTENT);
  }

  /** The answer to a request that never became whole. */
  public static FullHttpResponse whole(ApiException error) {
    FullHttpResponse response =
        whole(
            error.status(),
            "application/json; charset=utf-8",
            error.json().toString().getBytes(UTF_8));
    response.headers().set(Request.ID, Request.newId());
    return response;
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
  public void beginEvents() {
    HttpResponse response = new DefaultHttpResponse(HttpVersion.HTTP_1_1, HttpResponseStatus.OK);
    if (request.isHttp11()) {
      HttpUtil.setTransferEncodingChunked(response, true);
    }
    begin(typed(response, "text/event-stream; charset=utf-8"));
    events = true;
    ChannelFuture _ = channel.writeAndFlush(response);
  }

  /**
   * Sends one event; {@code data} is one line. A reader that is behind is waited for a moment, and
   * its connection closed if that does not help: what waits for it has a bound.
   */
  public void event(String data) {
    if (!waitForReader(false)) {
      ChannelFuture _ = channel.close();
      return;
    }
    String event = "data: " + data + "\n\n";
    ChannelFuture _ =
        channel.writeAndFlush(
            new DefaultHttpContent(Unpooled.wrappedBuffer(event.getBytes(UTF_8))));
  }

  /**
   * Waits until the client has taken enough for more to be written.
   *
   * @param steadily whether it may take as long as it likes, as long as it takes something
   * @return false if it is not there, or too slow
   */
  private boolean waitForReader(boolean steadily) {
    long start = System.nanoTime();
    long left = Long.MAX_VALUE; // bytes that it has still to take
    boolean interrupted = false;
    boolean writable = channel.channel().isWritable();
    while (!writable && isConnected()) {
      long now = channel.channel().bytesBeforeWritable();
      if (steadily && now < left) {
        start = System.nanoTime();
      }
      left = now;
      if (System.nanoTime() - start > limit(steadily, interrupted).toNanos()) {
        break;
      }
      try {
        Thread.sleep(2);
      } catch (InterruptedException e) {
        interrupted = true; // the server closes, or the client went
      }
      writable = channel.channel().isWritable();
    }
    if (interrupted) {
      Thread.currentThread().interrupt();
    }
    return writable && isConnected();
  }

  private Duration limit(boolean steadily, boolean interrupted) {
    Duration patience = connection.patience();
    if (!steadily || interrupted || cancelled) {
      return MOST_BEHIND;
    }
    boolean inTheWay = outbox != null && outbox.isShort();
    return inTheWay && patience.compareTo(MOST_IN_THE_WAY) > 0 ? MOST_IN_THE_WAY : patience;
  }

  public void endEvents() {
    end(LastHttpContent.EMPTY_LAST_CONTENT);
  }

  private void begin(HttpResponse response) {
    status = response.status().code();
    response.headers().set(Request.ID, request.id());
    if (!mayGoOn()) {
      response.headers().set(HttpHeaderNames.CONNECTION, HttpHeaderValues.CLOSE);
    }
  }

  private boolean mayGoOn() {
    return request.mayGoOn() && connection.mayGoOn();
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
