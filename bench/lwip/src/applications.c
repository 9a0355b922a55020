/*
 * Short conversations, requests and bulk on lwIP's raw API: client and server on one instance, each
 * with network interfaces of its own, and two queues of packets between them.
 *
 * Nothing of lwIP's is started but lwip_init(): no thread of its own, no clock. Time is the caller's,
 * who calls bench_tick() for each 250 ms of it.
 */
#include <malloc.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "lwip/init.h"
#include "lwip/ip4.h"
#include "lwip/netif.h"
#include "lwip/pbuf.h"
#include "lwip/priv/tcp_priv.h"
#include "lwip/tcp.h"

enum { REQUEST = 100, RESPONSE = 500, PORT = 80, SOURCES = 8, FIRST_PORT = 1024, QUEUE = 1 << 15 };
enum { CLIENT, SERVER };
enum { SHORT, PINGPONG, BULK, IDLE };

struct queue {
    struct pbuf *packets[QUEUE];
    uint32_t head, tail;
};

static struct netif sources[SOURCES], server;
static struct queue to[2];
static struct tcp_pcb *listener;
static uint32_t mode, next_source;
static uint64_t packets, done, opened, faults;
static const char data[65536];

/* A packet on the wire: as a device's driver has it, in a buffer that is used again. */
struct frame {
    struct pbuf_custom pbuf;
    struct frame *next;
    uint8_t bytes[1500];
};

static struct frame *unused;

static void give_back(struct pbuf *pbuf)
{
    struct frame *frame = (struct frame *)pbuf;
    frame->next = unused;
    unused = frame;
}

static struct pbuf *copy_of(const struct pbuf *packet)
{
    struct frame *frame = unused;
    uint16_t length = packet->tot_len;
    if (frame != NULL)
        unused = frame->next;
    else if ((frame = malloc(sizeof *frame)) == NULL)
        return NULL;
    frame->pbuf.custom_free_function = give_back;
    pbuf_copy_partial(packet, frame->bytes, length, 0);
    return pbuf_alloced_custom(PBUF_RAW, length, PBUF_REF, &frame->pbuf, frame->bytes, length);
}

/* What the wire carries is copied, as a device does: lwIP keeps what it may have to send again. */
static err_t send_packet(struct netif *netif, struct pbuf *packet, const ip4_addr_t *address)
{
    struct queue *queue = &to[netif == &server ? CLIENT : SERVER];
    struct pbuf *copy = copy_of(packet);
    (void)address;
    if (copy == NULL || queue->head - queue->tail == QUEUE) {
        faults++;
        return ERR_MEM;
    }
    queue->packets[queue->head++ % QUEUE] = copy;
    packets++;
    return ERR_OK;
}

/* The interface that has the packet's destination. */
static struct netif *receiver(int end, const struct pbuf *packet)
{
    /* The last byte of the destination numbers the source. */
    return end == SERVER ? &server : &sources[((const uint8_t *)packet->payload)[19] - 10];
}

static err_t init_netif(struct netif *netif)
{
    netif->output = send_packet;
    netif->mtu = 1500;
    netif->flags = NETIF_FLAG_UP | NETIF_FLAG_LINK_UP;
    return ERR_OK;
}

static void add_netif(struct netif *netif, uint8_t last)
{
    ip4_addr_t address, mask, gateway;
    IP4_ADDR(&address, 10, 0, 0, last);
    IP4_ADDR(&mask, 255, 255, 255, 255);
    ip4_addr_set_zero(&gateway);
    netif_add(netif, &address, &mask, &gateway, NULL, init_netif, ip4_input);
}

static void on_error(void *count, err_t error)
{
    (void)count, (void)error;
    faults++;
}

/* Bytes that a connection has still to read are its argument: nothing is allocated for it. */
static uintptr_t take(struct tcp_pcb *pcb, struct pbuf *packet, void *count)
{
    uintptr_t read = (uintptr_t)count + packet->tot_len;
    tcp_recved(pcb, packet->tot_len);
    pbuf_free(packet);
    tcp_arg(pcb, (void *)read);
    return read;
}

static void say(struct tcp_pcb *pcb, uint16_t length)
{
    faults += tcp_write(pcb, data, length, TCP_WRITE_FLAG_COPY) != ERR_OK;
}

static void fill(struct tcp_pcb *pcb)
{
    while (tcp_sndbuf(pcb) >= TCP_MSS) {
        uint16_t length = LWIP_MIN(tcp_sndbuf(pcb) / TCP_MSS * TCP_MSS, 65535 / TCP_MSS * TCP_MSS);
        if (tcp_write(pcb, data, length, TCP_WRITE_FLAG_COPY) != ERR_OK)
            break;
    }
}

static err_t serve(void *count, struct tcp_pcb *pcb, struct pbuf *packet, err_t error)
{
    (void)error;
    if (packet == NULL)
        return tcp_close(pcb);
    if (mode == BULK) {
        done += packet->tot_len;
        take(pcb, packet, NULL);
    } else if (take(pcb, packet, count) == REQUEST) {
        tcp_arg(pcb, NULL);
        say(pcb, RESPONSE);
        if (mode == SHORT) {
            /* tcp_close() would reset what it finds unread: nothing is. */
            tcp_err(pcb, NULL);
            return tcp_close(pcb);
        }
    }
    return ERR_OK;
}

static err_t accept_one(void *count, struct tcp_pcb *pcb, err_t error)
{
    (void)count, (void)error;
    tcp_nagle_disable(pcb);
    tcp_recv(pcb, serve);
    tcp_err(pcb, on_error);
    return ERR_OK;
}

static err_t on_answer(void *count, struct tcp_pcb *pcb, struct pbuf *packet, err_t error)
{
    (void)error;
    if (packet == NULL) {
        faults += mode != SHORT || (uintptr_t)count != RESPONSE;
        done++;
        opened--;
        tcp_err(pcb, NULL);
        return tcp_close(pcb);
    }
    if (take(pcb, packet, count) == RESPONSE && mode == PINGPONG) {
        tcp_arg(pcb, NULL);
        done++;
        say(pcb, REQUEST);
    }
    return ERR_OK;
}

static err_t on_sent(void *count, struct tcp_pcb *pcb, uint16_t length)
{
    (void)count, (void)length;
    fill(pcb);
    return ERR_OK;
}

static err_t on_open(void *count, struct tcp_pcb *pcb, err_t error)
{
    (void)count, (void)error;
    if (mode == IDLE)
        done++;
    else if (mode == BULK)
        fill(pcb);
    else
        say(pcb, REQUEST);
    return ERR_OK;
}

/* The client's address and port are set by hand: tcp_bind() would search all connections of the
 * server as well, which a client with an instance of its own has not. */
void bench_open(void)
{
    struct netif *netif = &sources[next_source % SOURCES];
    struct tcp_pcb *pcb = tcp_new();
    tcp_nagle_disable(pcb);
    tcp_bind_netif(pcb, netif);
    ip_addr_copy(pcb->local_ip, netif->ip_addr);
    pcb->local_port = FIRST_PORT + next_source++ / SOURCES % (65536 - FIRST_PORT);
    tcp_recv(pcb, on_answer);
    tcp_err(pcb, on_error);
    if (mode == BULK)
        tcp_sent(pcb, on_sent);
    faults += tcp_connect(pcb, &server.ip_addr, PORT, on_open) != ERR_OK;
    opened++;
}

/* What connections that are opened from now on are for. */
void bench_mode(uint32_t what)
{
    mode = what;
}

/* Both ends, once a process; and a listener, each time. */
void bench_begin(void)
{
    static uint8_t begun;
    if (!begun) {
        lwip_init();
        for (uint8_t number = 0; number < SOURCES; number++)
            add_netif(&sources[number], 10 + number);
        add_netif(&server, 2);
        begun = 1;
    }
    packets = done = opened = faults = 0;
    struct tcp_pcb *pcb = tcp_new();
    tcp_bind_netif(pcb, &server);
    faults += tcp_bind(pcb, &server.ip_addr, PORT) != ERR_OK;
    listener = tcp_listen_with_backlog(pcb, 255);
    tcp_accept(listener, accept_one);
}

/* Hands what waits for an end to it. */
void bench_deliver(uint32_t end)
{
    struct queue *queue = &to[end];
    for (uint32_t last = queue->head; queue->tail != last; queue->tail++) {
        struct pbuf *packet = queue->packets[queue->tail % QUEUE];
        struct netif *netif = receiver(end, packet);
        if (netif->input(packet, netif) != ERR_OK)
            faults++;
    }
}

/* 250 ms have passed. */
void bench_tick(void)
{
    tcp_tmr();
}

/* Connections in TIME-WAIT. */
uint32_t bench_time_waits(void)
{
    uint32_t count = 0;
    for (const struct tcp_pcb *pcb = tcp_tw_pcbs; pcb != NULL; pcb = pcb->next)
        count++;
    return count;
}

/* The time of all but the newest connections in TIME-WAIT is over: as in tcp_slowtmr(). */
void bench_keep(uint32_t count)
{
    struct tcp_pcb **link = &tcp_tw_pcbs;
    while (*link != NULL && count-- > 0)
        link = &(*link)->next;
    struct tcp_pcb *old = *link;
    *link = NULL;
    while (old != NULL) {
        struct tcp_pcb *next = old->next;
        tcp_pcb_purge(old);
        tcp_free(old);
        old = next;
    }
}

/* Connections in TIME-WAIT that are out of lwIP's sight, so that others get there sooner. */
static struct tcp_pcb *aside;

static struct tcp_pcb *joined(struct tcp_pcb *front, struct tcp_pcb *back)
{
    struct tcp_pcb **link = &front;
    while (*link != NULL)
        link = &(*link)->next;
    *link = back;
    return front;
}

/* Puts those in TIME-WAIT aside. */
void bench_set_aside(void)
{
    aside = joined(tcp_tw_pcbs, aside);
    tcp_tw_pcbs = NULL;
}

/* All of them are in sight again. */
void bench_bring_back(void)
{
    tcp_tw_pcbs = joined(tcp_tw_pcbs, aside);
    aside = NULL;
}

/* Ends everything, without a word to the other end. */
void bench_end(void)
{
    while (tcp_active_pcbs != NULL) {
        tcp_err(tcp_active_pcbs, NULL);
        tcp_abandon(tcp_active_pcbs, 0);
    }
    bench_keep(0);
    tcp_close(listener);
    for (int end = CLIENT; end <= SERVER; end++)
        for (; to[end].tail != to[end].head; to[end].tail++)
            pbuf_free(to[end].packets[to[end].tail % QUEUE]);
}

uint64_t bench_packets(void) { return packets; }
uint64_t bench_done(void) { return done; }
uint64_t bench_opened(void) { return opened; }
uint64_t bench_faults(void) { return faults; }

/* Bytes of the C library's heap that are in use, in its main arena. */
uint64_t bench_heap(void)
{
    struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}
