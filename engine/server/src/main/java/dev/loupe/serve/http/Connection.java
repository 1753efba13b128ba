package dev.loupe.serve.http;

import io.netty.buffer.Unpooled;
import io.netty.channel.Channel;
import io.netty.channel.ChannelFuture;
import io.netty.channel.ChannelFutureListener;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelOutboundBuffer;
import io.netty.channel.SimpleChannelInboundHandler;
import io.netty.handler.codec.http.FullHttpRequest;
import io.netty.handler.codec.http.TooLongHttpHeaderException;
import io.netty.handler.codec.http.TooLongHttpLineException;
import io.netty.util.concurrent.ScheduledFuture;
import java.time.Duration;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import org.jspecify.annotations.Nullable;

/**
 * One client's connection, on the thread of the network. A request must be there, whole, within a
 * time from the connection's beginning or from the last answer: neither a connection that says
 * nothing nor one that says it slowly stays. An answer that is still on its way stays as long as
 * the client takes some of it within that time.
 *
 * <p>Requests that follow before the answer (pipelining) are not answered; the connection closes
 * after the first, and the client sends them again. No client in use does this.
 */
public final class Connection extends SimpleChannelInboundHandler<FullHttpRequest> {
  private final Consumer<Exchange> handler;
  private final Duration patience;
  private @Nullable Exchange current;
  private @Nullable ScheduledFuture<?> deadline;
  private long arrivals; // of bytes
  private long answered; // of those arrivals
  private long lastAnswer; // nanoseconds since the server's class was loaded; 0 before the first
  private volatile boolean last;

  private static final long BEGINNING = System.nanoTime();

  public Connection(Consumer<Exchange> handler, Duration patience) {
    this.handler = handler;
    this.patience = patience;
  }

  @Override
  public void channelActive(ChannelHandlerContext channel) {
    await(channel);
  }

  @Override
  protected void channelRead0(ChannelHandlerContext channel, FullHttpRequest request) {
    if (current != null) {
      last = true;
      return;
    }
    if (deadline != null) {
      deadline.cancel(false);
    }
    Exchange exchange = new Exchange(channel, this, new Request(request));
    current = exchange;
    @Nullable Throwable malformed = request.decoderResult().cause();
    if (malformed == null) {
      handler.accept(exchange);
      return;
    }
    last = true; // where the next request begins is not known
    int status =
        malformed instanceof TooLongHttpLineException
            ? 414
            : malformed instanceof TooLongHttpHeaderException ? 431 : 400;
    exchange.send(
        ApiException.invalid(status, null, "this is no HTTP request, or its headers are too long"),
        Map.of());
  }

  @Override
  public void channelInactive(ChannelHandlerContext channel) {
    if (deadline != null) {
      deadline.cancel(false);
    }
    if (current != null) {
      current.cancel();
    }
  }

  @Override
  public void exceptionCaught(ChannelHandlerContext channel, Throwable cause) {
    ChannelFuture _ = channel.close(); // a reset, most likely; channelInactive does the rest
  }

  /** Whether another request may follow on this connection. */
  boolean mayGoOn() {
    return !last;
  }

  /** Whether no request of this connection is being answered. */
  boolean isIdle() {
    return current == null;
  }

  /** Some bytes have come. */
  public void arrived() {
    arrivals++;
  }

  /** How often bytes have come. */
  long arrivals() {
    return arrivals;
  }

  /** Whether a part of a request is there that has no answer yet. */
  boolean hasBegun() {
    return arrivals > answered;
  }

  /** When it last had an answer, later ones have a higher number; 0 if it never had one. */
  long lastAnswer() {
    return lastAnswer;
  }

  /** Time in which a client must take some of its answer. */
  Duration patience() {
    return patience;
  }

  /** The answer is on its way: what arrives from here on is another request. */
  void answered(ChannelHandlerContext channel) {
    current = null;
    answered = arrivals;
    lastAnswer = Math.max(1, System.nanoTime() - BEGINNING);
    if (channel.channel().isActive()) {
      // Java's own client keeps a connection for as long as one patience. If the server waited no
      // longer, the client would send a request on a connection that is just being closed.
      await(channel, Long.MAX_VALUE, true);
    }
  }

  /** Closes once what is being answered is sent. */
  public void closeSoon(Channel channel) {
    channel
        .eventLoop()
        .execute(
            () -> {
              last = true;
              if (current == null) { // after what is still to be written
                channel
                    .writeAndFlush(Unpooled.EMPTY_BUFFER)
                    .addListener(ChannelFutureListener.CLOSE);
              }
            });
  }

  private void await(ChannelHandlerContext channel) {
    await(channel, Long.MAX_VALUE, false);
  }

  /**
   * Closes after a patience in which the client took nothing of {@code unsentBefore} bytes.
   *
   * @param again whether it waits once more where nothing is unsent
   */
  private void await(ChannelHandlerContext channel, long unsentBefore, boolean again) {
    Runnable close =
        () -> {
          long unsent = unsent(channel.channel());
          if (unsent > 0 && unsent < unsentBefore) {
            await(channel, unsent, again); // it reads on
          } else if (unsent == 0 && again) {
            await(channel);
          } else {
            ChannelFuture _ = channel.close();
          }
        };
    deadline = channel.executor().schedule(close, patience.toMillis(), TimeUnit.MILLISECONDS);
  }

  /** Bytes of answers that the system has not taken yet. */
  private static long unsent(Channel channel) {
    ChannelOutboundBuffer buffer = channel.unsafe().outboundBuffer();
    return buffer == null ? 0 : buffer.totalPendingWriteBytes();
  }
}
